//! Durable runs of one kind, as the executions of agents are: begun, listed, waited for, told something,
//! cancelled, and kept for a while after their end.
//!
//! ```text
//! begin ─▶ a step is due ─▶ an actor takes steps ─┬─▶ nothing is due: it waits, without an actor ─┐
//!                ▲                                │     told, cancelled, or its time has come     │
//!                ├────────────────────────────────┼───────────────────────────────────────────────┘
//!                ├─ reopened ◀────────────────────┴─▶ over ─▶ rested ─▶ forgotten by count and age
//!                └─ at the daemon's next start, from its records
//! ```
//! A run is a [`Saga`] with an owner. Its records are the only truth: what it waits for, the time that ends the
//! wait, its events. Its stream is never folded, so a record's place in it is the sequence of an event.
//! [`Runs`] answers from memory; an actor below the root starts those that have something due, at most so many
//! at a time, and wakes those whose time has come. A run of a queue is begun whether or not there is a place for it,
//! and waits for that.

mod events;
mod feed;
mod manager;
mod shared;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod timers;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use hivekeep_kernel::{CallCx, Fault, Layer, RestartPolicy, Tier, ToolError, User, codes};
use hivekeep_ports::SessionQuotas;
use tokio::time::Instant;

use self::{
    manager::Manager,
    shared::{Shared, is_over, stream},
    table::{Found, KeptRun, Table},
};
use crate::{
    Child, Daemon, WaiterLimit, collection,
    log::{self, Decision, Log, Sourced},
    saga::{Saga, SagaHandle, SagaView},
};

pub use events::{RunCursor, RunEvent, RunEvents, SequencedEvent};
pub use shared::to_its_end;
pub use state::{RunQueue, RunRetention, RunState, RunStatus};

/// Page of a list.
pub type ListedRuns<G> = Vec<(IdOf<G>, SagaView<G>)>;
type IdOf<G> = <<G as Saga>::State as RunState>::Id;
type RecordOf<G> = <<G as Saga>::State as Sourced>::Record;

/// Margin before the deadline of a call that waits: its answer has to arrive.
const MARGIN: Duration = Duration::from_secs(1);
/// Longest time between two words to a call that waits.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Bounds of the runs of one kind.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Runs that take steps at a time, at most three quarters of them one user's. A begin above it is refused;
    /// one that waited goes on when there is a place.
    pub max_running: usize,
    /// Runs that are over and kept.
    pub kept: usize,
    /// Days that a run is kept after its end, unless it says otherwise.
    pub kept_days: u32,
    /// Runs of a queue that take steps at a time, by its name; of one that is not here, one.
    pub queues: BTreeMap<String, usize>,
}

/// Caller as runs see it.
#[derive(Debug, Clone, Copy)]
pub struct RunCaller {
    /// User of its session.
    pub user: User,
    /// True if its credential is an operator's.
    pub operator: bool,
}

impl RunCaller {
    /// Caller of a call, by its credential. One whose session is over has no runs.
    pub fn of(cx: &CallCx, sessions: &dyn SessionQuotas) -> Self {
        let user = sessions.user(cx.session).unwrap_or(User::Nobody);
        Self { user, operator: cx.view.reaches(Tier::Operator) }
    }

    fn sees(self, user: User) -> bool {
        self.operator || self.user == user
    }
}

/// See the module. Cheap to clone; clones are one.
pub struct Runs<G: Saga<State: RunState>>(Arc<Shared<G>>);

impl<G: Saga<State: RunState>> Clone for Runs<G> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Runs as their own steps reach them, without keeping them.
pub struct WeakRuns<G: Saga<State: RunState>>(Weak<Shared<G>>);

impl<G: Saga<State: RunState>> WeakRuns<G> {
    /// The runs, unless they are gone with their daemon.
    pub fn upgrade(&self) -> Option<Runs<G>> {
        self.0.upgrade().map(Runs)
    }
}

impl<G: Saga<State: RunState>> Runs<G> {
    /// A reference for the arguments of the runs themselves.
    pub fn downgrade(&self) -> WeakRuns<G> {
        WeakRuns(Arc::downgrade(&self.0))
    }

    /// Reads all runs of the journal. The child is the actor that goes on with them, `PATH` below the root.
    ///
    /// # Errors
    /// `state_unreadable`; `internal` when no family before offers a [`WaiterLimit`].
    pub async fn open(
        daemon: &Daemon,
        path: &'static str,
        options: RunOptions,
        args: G::Args,
    ) -> Result<(Self, Child), ToolError> {
        let loaded = collection::load::<G::State, IdOf<G>>(&daemon.journal).await;
        let loaded = loaded.map_err(|Fault(why)| {
            ToolError::new(Layer::Store, codes::STATE_UNREADABLE, why)
                .next("restore the state directory from a backup; nothing was overwritten")
        })?;
        let table = Table::default();
        for (id, loaded) in loaded {
            table.restore(id, Log::of(daemon.journal.clone(), stream::<G>(id)?, Some(loaded)));
        }
        let shared = Arc::new(Shared {
            daemon: daemon.clone(),
            options,
            args,
            waiters: daemon.ports.need::<WaiterLimit>()?.of(G::State::LABEL),
            manager: daemon.address(path, RestartPolicy::ESSENTIAL),
            table,
        });
        let child = Child::new::<Manager<G>>(shared.manager.clone(), shared.clone());
        Ok((Self(shared), child))
    }

    /// Begins a run with its first record, which is durable when this returns, and goes on with it. Done to its
    /// end whether or not anybody waits.
    ///
    /// # Errors
    /// `too_many_runs`, `internal` for an id that is there, `daemon_stopping`, `journal_failed`; nothing was begun then, as far as the message
    /// does not say otherwise.
    pub async fn begin(&self, id: IdOf<G>, first: RecordOf<G>) -> Result<(), ToolError> {
        self.begin_with(id, first, Vec::new()).await
    }

    /// Begins a run with several records, all of which are durable when this returns, or none.
    ///
    /// # Errors
    /// As [`Self::begin`]; `internal` for records that do not follow.
    pub async fn begin_with(
        &self,
        id: IdOf<G>,
        first: RecordOf<G>,
        more: Vec<RecordOf<G>>,
    ) -> Result<(), ToolError> {
        if self.0.daemon.closing.is_cancelled() {
            return Err(ToolError::daemon_stopping());
        }
        let label = G::State::LABEL;
        let begun = G::State::begin(first.clone());
        let begun = begun.map_err(|_| ToolError::internal(format!("no {label} begins so")))?;
        let stream = stream::<G>(id)?;
        let allowance = self.0.allowance(begun.user());
        self.0.table.admit(id, &begun, self.0.options.max_running, allowance)?;
        let shared = self.0.clone();
        to_its_end(async move { shared.write(id, stream, first, more).await }).await
    }

    /// Looks at a run.
    ///
    /// # Errors
    /// [`RunState::NOT_FOUND`], as everywhere below.
    pub fn get(&self, caller: RunCaller, id: &str) -> Result<SagaView<G>, ToolError> {
        self.0.table.find(caller, id).map(|found| found.view)
    }

    /// Looks at a run that is open, without a copy; `look` is short, and asks nothing of the runs.
    pub fn look<R>(&self, id: IdOf<G>, look: impl FnOnce(&G::State) -> R) -> Option<R> {
        Some(self.0.table.handle(id)?.view(|view| look(&view.state)))
    }

    /// Looks so at all runs that are open.
    pub fn look_at_all(&self, mut look: impl FnMut(IdOf<G>, &G::State)) {
        let open = self.0.table.open();
        open.into_iter().for_each(|(id, handle)| handle.view(|view| look(id, &view.state)));
    }

    /// Lists runs, of one group or of all, the newest first: at most `limit`, and how many there are.
    pub fn list(
        &self,
        caller: RunCaller,
        group: Option<&str>,
        limit: usize,
    ) -> (ListedRuns<G>, usize) {
        self.0.table.list(caller, group, limit)
    }

    /// Reads the events of a run from its stream: at most `limit` after the first `offset`.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub async fn events(
        &self,
        caller: RunCaller,
        id: &str,
        offset: usize,
        limit: usize,
    ) -> Result<RunEvents, ToolError> {
        let Found { id, view, .. } = self.0.table.find(caller, id)?;
        let (journal, stream) = (&self.0.daemon.journal, stream::<G>(id)?);
        events::read(journal, &stream, &view.state, offset, limit).await
    }

    /// Reads the next events of a run, some at a time; none where everything was read.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub async fn read_on(
        &self,
        caller: RunCaller,
        id: &str,
        cursor: &mut RunCursor,
    ) -> Result<Vec<SequencedEvent>, ToolError> {
        let Found { id, view, .. } = self.0.table.find(caller, id)?;
        cursor.read(&self.0.daemon.journal, &stream::<G>(id)?, &view.state).await
    }

    /// Reads as [`Self::read_on`] does, and waits until there is an event: none only where nothing follows any more.
    /// Without a bound, so that whoever waits has one.
    ///
    /// # Errors
    /// As [`Self::read_on`].
    pub async fn next_events(
        &self,
        caller: RunCaller,
        id: &str,
        cursor: &mut RunCursor,
    ) -> Result<Vec<SequencedEvent>, ToolError> {
        loop {
            let mut rested = self.0.table.rests();
            let run = self.0.table.find(caller, id)?.run;
            // Watched before it is read: what is written behind that is news.
            let news = match &run {
                // A run that is given up takes no step before the daemon's next start.
                KeptRun::Open(handle) => {
                    Some(handle.watch()).filter(|news| news.borrow().given_up.is_none())
                }
                _ => None,
            };
            let events = self.read_on(caller, id, cursor).await?;
            let Some(mut news) = news.filter(|_| events.is_empty()) else { return Ok(events) };
            tokio::select! {
                // The handle and the table keep them open.
                _ = news.changed() => {}
                _ = rested.changed() => {}
            }
        }
    }

    /// Reads all records of a run from its stream.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub async fn records(
        &self,
        caller: RunCaller,
        id: &str,
    ) -> Result<Vec<RecordOf<G>>, ToolError> {
        let Found { id, .. } = self.0.table.find(caller, id)?;
        Ok(log::read_records::<G::State>(&self.0.daemon.journal, &stream::<G>(id)?).await?)
    }

    /// Waits until a run is over, at most `limit` and the call's time; true if it is not over. Tells the call's
    /// progress, and holds no place among the calls that are worked on.
    ///
    /// # Errors
    /// `too_many_receivers`, `cancelled`, `deadline_exceeded`, `daemon_stopping`.
    pub async fn wait(
        &self,
        cx: &CallCx,
        id: &str,
        limit: Duration,
    ) -> Result<(SagaView<G>, bool), ToolError> {
        let caller = RunCaller::of(cx, &*self.0.daemon.sessions);
        let Found { id, run, view } = self.0.table.find(caller, id)?;
        let handle = match run {
            KeptRun::Open(handle) if !view.status().is_over() => handle,
            _ => return Ok((view, false)),
        };
        let _waiting = self.0.waiters.enter(id, cx.session)?;
        // Bounded by the waiters, and not by the admission of all calls.
        cx.slot.give_back();
        cx.guard(self.follow(cx, &handle, limit)).await
    }

    /// Waits until a run is over or given up, for another run that needs its end: without a bound, so that whoever
    /// waits has one.
    ///
    /// # Errors
    /// [`RunState::NOT_FOUND`].
    pub async fn ended(&self, caller: RunCaller, id: &str) -> Result<SagaView<G>, ToolError> {
        self.until(caller, id, |_| false).await
    }

    /// Waits as [`Self::ended`] does, or until the state is as it is wanted.
    ///
    /// # Errors
    /// [`RunState::NOT_FOUND`].
    pub async fn until(
        &self,
        caller: RunCaller,
        id: &str,
        wanted: impl Fn(&G::State) -> bool,
    ) -> Result<SagaView<G>, ToolError> {
        let Found { run, view, .. } = self.0.table.find(caller, id)?;
        let KeptRun::Open(handle) = run else { return Ok(view) };
        let mut news = handle.watch();
        let reached = |view: &SagaView<G>| view.status().is_over() || wanted(&view.state);
        // The handle keeps it open.
        let _reached = news.wait_for(reached).await.map(drop);
        Ok(handle.view(SagaView::clone))
    }

    /// Waits until a run that is over has taken its last steps; one that is not over is not waited for.
    ///
    /// # Errors
    /// [`RunState::NOT_FOUND`].
    pub async fn settled(&self, caller: RunCaller, id: &str) -> Result<(), ToolError> {
        let Found { run, .. } = self.0.table.find(caller, id)?;
        let KeptRun::Open(handle) = run else { return Ok(()) };
        let mut news = handle.watch();
        let settled = |view: &SagaView<G>| {
            let over = view.state.status().is_over() && view.given_up.is_none();
            !over || G::due(&view.state, &[]).is_empty()
        };
        // The handle keeps it open.
        let _settled = news.wait_for(settled).await.map(drop);
        Ok(())
    }

    async fn follow(
        &self,
        cx: &CallCx,
        handle: &SagaHandle<G>,
        limit: Duration,
    ) -> Result<(SagaView<G>, bool), ToolError> {
        let (began, left) = (Instant::now(), cx.remaining());
        let limit = limit.min(left.saturating_sub(MARGIN.min(left / 10)));
        let (mut news, mut told) = (handle.watch(), tokio::time::interval(TELL_EVERY));
        loop {
            let doing = {
                let view = news.borrow_and_update();
                if view.status().is_over() {
                    return Ok((view.clone(), false));
                }
                view.state.doing()
            };
            cx.progress.report(began.elapsed().as_secs_f64(), Some(limit.as_secs_f64()), doing);
            tokio::select! {
                biased;
                // The handle keeps it open.
                _ = news.changed() => {}
                () = self.0.daemon.closing.cancelled() => {
                    let label = G::State::LABEL;
                    let next = format!("wait again when the daemon is back; the {label} goes on");
                    return Err(ToolError::daemon_stopping().next(next));
                }
                () = tokio::time::sleep_until(began + limit) => {
                    return Ok((handle.view(SagaView::clone), true));
                }
                _ = told.tick() => {}
            }
        }
    }

    /// Cancels a run: answers when that is durable, and false when nothing was left to cut short. One that is
    /// given up reads it at the daemon's next start.
    ///
    /// # Errors
    /// `journal_failed`.
    pub async fn cancel(&self, caller: RunCaller, id: &str) -> Result<bool, ToolError> {
        let Found { id, run, .. } = self.0.table.find(caller, id)?;
        let KeptRun::Open(handle) = run else { return Ok(false) };
        let shared = self.0.clone();
        to_its_end(async move {
            let cancelled = handle.cancel().await;
            shared.look(id);
            cancelled
        })
        .await
    }

    /// Writes what came from outside, such as a message or a decision, and goes on with the run if something
    /// is due then. `decide` gets the state with everything decided before, of a run that is not over.
    ///
    /// # Errors
    /// `run_over`; as `decide` refuses; `journal_failed`.
    pub async fn tell(
        &self,
        caller: RunCaller,
        id: &str,
        decide: impl FnOnce(&G::State) -> Result<Decision<RecordOf<G>>, ToolError> + Send + 'static,
    ) -> Result<(), ToolError> {
        let Found { id, run, .. } = self.0.table.find(caller, id)?;
        let KeptRun::Open(handle) = run else { return Err(is_over::<G>(id)) };
        let shared = self.0.clone();
        let decide = move |state: &G::State| match state.status().is_over() {
            true => Err(is_over::<G>(id)),
            false => decide(state),
        };
        to_its_end(async move {
            let told = handle.decide(decide).await;
            shared.look(id);
            told
        })
        .await
    }

    /// Has a run that is over go on, by records that say how, such as those of another attempt; it is admitted as one
    /// that begins. `decide` gets the whole state. One that takes its last steps is waited for.
    ///
    /// # Errors
    /// `too_many_runs`; `busy` for one that is not over; as `decide` refuses; `journal_failed`. It stays over then.
    pub async fn reopen(
        &self,
        caller: RunCaller,
        id: &str,
        decide: impl FnOnce(&G::State) -> Result<Decision<RecordOf<G>>, ToolError> + Send + 'static,
    ) -> Result<(), ToolError> {
        let Found { id, view, .. } = self.0.table.find(caller, id)?;
        let shared = self.0.clone();
        to_its_end(async move { shared.reopen(id, view.state.user(), decide).await }).await
    }

    /// Removes a run that is over or given up, with all its records; false for another.
    ///
    /// # Errors
    /// `journal_failed`; `busy` while it takes its last steps.
    pub async fn remove(&self, caller: RunCaller, id: &str) -> Result<bool, ToolError> {
        let Found { id, view, .. } = self.0.table.find(caller, id)?;
        if !view.status().is_over() {
            return Ok(false);
        }
        let shared = self.0.clone();
        to_its_end(async move { shared.remove(id).await }).await
    }
}
