//! The actor of all runs of a kind: starts those that have something due, at most so many at a time, wakes those
//! whose time has come, and lets old ones go.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{ChildEnd, Context, Entity, Fault, User, fault_point};
use tokio::time::Instant;

use super::{
    IdOf, RunOptions, RunQueue, RunState, RunStatus,
    shared::{Shared, stream},
    table::share,
    timers::Timers,
};
use crate::{
    collection::{Collection, CollectionMember, MemberEnd},
    log::{Decision, LogError},
    saga::{Saga, SagaActor, SagaArgs, SagaHandle, SagaState as _},
};

/// Time between two looks for runs that are too old.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Time after which a wake that left no record is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Messages of the manager.
pub(super) enum Msg<Id> {
    /// Something may be due for a run.
    Look(Id),
    /// A run that was given up is removed.
    Removed(Id),
    /// A time has come, or a minute is over.
    Rang,
}

/// A run that is not at rest.
struct OpenRun<G: Saga<State: RunState>>(SagaHandle<G>);

impl<G: Saga<State: RunState>> CollectionMember for OpenRun<G> {
    type Id = IdOf<G>;
    type Actor = SagaActor<G>;
    const KIND: &'static str = G::State::LABEL;
}

/// Order in which runs get places: those that had one before, then by priority, then by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceRank {
    is_new: bool,
    priority: Reverse<i32>,
}

impl PlaceRank {
    fn of<G: Saga<State: RunState>>(handle: &SagaHandle<G>) -> Self {
        handle.view(|view| Self {
            is_new: view.state.status() == RunStatus::Pending,
            priority: Reverse(view.state.queue().map_or(0, |queue| queue.priority)),
        })
    }
}

/// See the module.
pub(super) struct Manager<G: Saga<State: RunState>> {
    me: Context<Msg<IdOf<G>>>,
    shared: Arc<Shared<G>>,
    runs: Collection<OpenRun<G>>,
    /// Runs with an actor that take a place, each with its user and its queue.
    placed: BTreeMap<IdOf<G>, (User, Option<String>)>,
    /// Runs that have something due and wait for a place, in their order.
    queued: BTreeSet<(PlaceRank, IdOf<G>)>,
    timers: Timers<IdOf<G>>,
    swept: Instant,
}

impl<G: Saga<State: RunState>> Entity for Manager<G> {
    type Msg = Msg<IdOf<G>>;
    type Args = Arc<Shared<G>>;

    async fn start(shared: Arc<Shared<G>>, me: Context<Self::Msg>) -> Result<Self, Fault> {
        let (runs, timers) = (Collection::new(&me, shared.daemon.census.clone()), Timers::new());
        let manager = me.address.clone();
        // A manager that is gone has its own alarm.
        let _detached = me.workers.spawn(timers.alarm(move || drop(manager.send(Msg::Rang))));
        let (placed, queued, swept) = (BTreeMap::new(), BTreeSet::new(), Instant::now());
        let mut manager = Self { me, shared, runs, placed, queued, timers, swept };
        let mut open = manager.shared.table.open();
        for (_, handle) in &open {
            // Decisions of an earlier incarnation's runs are written first.
            handle.settled().await;
        }
        open.sort_by_key(|(id, handle)| (PlaceRank::of(handle), *id));
        open.into_iter().for_each(|(id, _)| manager.look(id));
        manager.sweep();
        Ok(manager)
    }

    fn handle(&mut self, message: Self::Msg) -> Result<(), Fault> {
        match message {
            Msg::Look(id) => self.look(id),
            Msg::Removed(id) => drop(self.runs.remove(id)),
            Msg::Rang => {
                let now = Utc::now();
                self.timers.take_due(now).into_iter().for_each(|id| self.wake(id));
                if self.swept.elapsed() >= SWEEP_EVERY {
                    self.swept = Instant::now();
                    // A run that was begun between two incarnations was not told of.
                    self.shared.table.open().into_iter().for_each(|(id, _)| self.look(id));
                    self.sweep();
                }
            }
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let Some((id, ended)) = self.runs.handle_end(end)? else { return Ok(()) };
        self.placed.remove(&id);
        match (ended, self.runs.get(id)) {
            (MemberEnd::GivenUp(reason), Some(OpenRun(handle))) => handle.give_up(&reason),
            // Something may have been written since its actor looked last.
            _ => self.look(id),
        }
        self.fill();
        Ok(())
    }
}

impl<G: Saga<State: RunState>> Manager<G> {
    /// Starts a run that has something due, sets the time of one that waits, and rests one that is over.
    fn look(&mut self, id: IdOf<G>) {
        let Some(handle) = self.handle_of(id) else { return };
        if self.runs.address(id).is_some() || self.runs.given_up(id).is_some() {
            return;
        }
        let (due, over, ends, wakes_at) = handle.view(|view| {
            let (state, over) = (&view.state, view.state.status().is_over());
            let due = !G::due(state, &[]).is_empty();
            (due, over, over || state.is_cancelled(), state.wakes_at())
        });
        self.timers.set(id, wakes_at.filter(|_| !due && !over));
        // Last steps are taken without a place.
        if due && !ends && takes_place(&handle) && !self.has_place(&handle) {
            self.queued.insert((PlaceRank::of(&handle), id));
        } else if due {
            self.start_run(id, handle);
        } else if over {
            self.runs.remove(id);
            self.shared.table.rest(id);
            self.sweep();
        }
    }

    fn handle_of(&mut self, id: IdOf<G>) -> Option<SagaHandle<G>> {
        if let Some(OpenRun(handle)) = self.runs.get(id) {
            return Some(handle.clone());
        }
        let handle = self.shared.table.handle(id)?;
        // No run has a name that could be taken.
        let _no_names = self.runs.insert(id, OpenRun(handle.clone()));
        Some(handle)
    }

    /// Whether there is a place for a run: of a queue one of that, too, and one of its user's.
    fn has_place(&self, handle: &SagaHandle<G>) -> bool {
        let RunOptions { max_running, queues, .. } = &self.shared.options;
        let has_own = |state: &G::State| {
            let Some(RunQueue { name, .. }) = state.queue() else { return true };
            let (mut of_queue, mut of_user) = (0, 0);
            for (user, queue) in self.placed.values() {
                of_queue += usize::from(queue.as_ref() == Some(name));
                of_user += usize::from(*user == state.user());
            }
            of_queue < queues.get(name).copied().unwrap_or(1)
                && of_user < share(*max_running).min(self.shared.allowance(state.user()))
        };
        self.placed.len() < *max_running && handle.view(|view| has_own(&view.state))
    }

    /// Starts runs that wait, the first of those that have a place.
    fn fill(&mut self) {
        loop {
            let may = |(_, id): &&(PlaceRank, IdOf<G>)| {
                self.runs.get(*id).is_none_or(|OpenRun(handle)| self.has_place(handle))
            };
            let Some(next) = self.queued.iter().find(may).copied() else { return };
            self.queued.remove(&next);
            self.look(next.1);
        }
    }

    fn start_run(&mut self, id: IdOf<G>, handle: SagaHandle<G>) {
        self.queued.remove(&(PlaceRank::of(&handle), id));
        let args = SagaArgs {
            args: self.shared.args.clone(),
            handle: handle.clone(),
            sessions: self.shared.daemon.sessions.clone(),
            closing: self.shared.daemon.closing.clone(),
        };
        match self.runs.start(id, args) {
            Ok(_address) if takes_place(&handle) => {
                let of = |state: &G::State| {
                    (state.user(), state.queue().map(|queue| queue.name.clone()))
                };
                self.placed.insert(id, handle.view(|view| of(&view.state)));
            }
            Ok(_address) => {}
            Err(Fault(reason)) => handle.give_up(&reason),
        }
    }

    /// Writes that the time of a run has come, and looks what is due then.
    fn wake(&self, id: IdOf<G>) {
        let Some(OpenRun(handle)) = self.runs.get(id) else { return };
        let (handle, manager) = (handle.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            fault_point!("runs.time_due");
            let woken = |state: &G::State| {
                let record = state.woken(Utc::now());
                Ok::<_, LogError>(record.map_or_else(Decision::nothing, Decision::record))
            };
            if let Err(error) = handle.decide(woken).await {
                tracing::warn!(run = %id, %error, "its time has come and could not be written");
            }
            let is_past = |at| at <= Utc::now();
            if handle.view(|view| view.state.wakes_at().is_some_and(is_past)) {
                tokio::time::sleep(RETRY).await;
            }
            let _all_are_looked_at = manager.send(Msg::Look(id));
        });
    }

    /// Lets old runs go.
    fn sweep(&self) {
        let gone = self.shared.table.expire(&self.shared.options, Utc::now());
        if gone.is_empty() {
            return;
        }
        let journal = self.shared.daemon.journal.clone();
        let _detached = self.me.workers.spawn(async move {
            for stream in gone.into_iter().filter_map(|id| stream::<G>(id).ok()) {
                // The next start sees it again, and tries again.
                if let Err(error) = journal.forget(&stream).await {
                    tracing::warn!(%stream, %error, "an old run was not forgotten");
                }
            }
        });
    }
}

fn takes_place<G: Saga<State: RunState>>(handle: &SagaHandle<G>) -> bool {
    handle.view(|view| view.state.takes_place())
}
