//! Runs by id, as everybody sees them: those that are open by their handles, those that are over by what is
//! left of their states. Bounds how many are begun and how many are kept.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Layer, ToolError, User, codes, lock};
use tokio::sync::watch;

use super::{IdOf, ListedRuns, RunCaller, RunOptions, RunQueue, RunRetention, RunState, RunStatus};
use crate::{
    log::Log,
    saga::{Saga, SagaHandle, SagaView},
};

/// Most runs that are not over, those that wait among them; at most three quarters of them one user's.
const MOST_OPEN: usize = 16_384;
/// Most runs that wait in a queue for their first place.
const MOST_QUEUED: usize = 1000;
const SECS_A_DAY: u64 = 24 * 60 * 60;

/// A run, as far as it is in memory.
pub(super) enum KeptRun<G: Saga<State: RunState>> {
    /// Its first record is being written.
    Begins(G::State),
    /// Under way, waiting or given up; or over, and its last steps are taken.
    Open(SagaHandle<G>),
    /// Nothing follows.
    Over(G::State),
    /// Over, and about to go on by a record that is being written.
    Reopens(G::State),
}

impl<G: Saga<State: RunState>> Clone for KeptRun<G> {
    fn clone(&self) -> Self {
        match self {
            Self::Begins(state) => Self::Begins(state.clone()),
            Self::Open(handle) => Self::Open(handle.clone()),
            Self::Over(state) => Self::Over(state.clone()),
            Self::Reopens(state) => Self::Reopens(state.clone()),
        }
    }
}

impl<G: Saga<State: RunState>> KeptRun<G> {
    /// Looks at the state; of one that begins there is none.
    fn state<R>(&self, look: impl FnOnce(&G::State) -> R) -> Option<R> {
        (!matches!(self, Self::Begins(_))).then(|| self.coming(look))
    }

    /// Looks at the state, of one that begins at the state that it is going to have.
    fn coming<R>(&self, look: impl FnOnce(&G::State) -> R) -> R {
        match self {
            Self::Open(handle) => handle.view(|view| look(&view.state)),
            Self::Begins(state) | Self::Over(state) | Self::Reopens(state) => look(state),
        }
    }

    /// Copy for a look; of one that begins there is none.
    fn view(&self) -> Option<SagaView<G>> {
        match self {
            Self::Begins(_) => None,
            Self::Open(handle) => Some(handle.view(SagaView::clone)),
            Self::Over(state) | Self::Reopens(state) => Some(SagaView::new(state.clone())),
        }
    }

    fn is_given_up(&self) -> bool {
        matches!(self, Self::Open(handle) if handle.view(|view| view.given_up.is_some()))
    }

    /// Owner of one that is not over, or is given up.
    fn open_user(&self) -> Option<User> {
        match self {
            Self::Open(handle) => handle.view(|view| {
                let state = &view.state;
                (!state.status().is_over()).then(|| state.user())
            }),
            Self::Begins(state) | Self::Reopens(state) => Some(state.user()),
            Self::Over(_) => None,
        }
    }

    /// Whether it takes a place among those that run. One that was not begun in its queue waits for that.
    fn takes_place(&self) -> bool {
        let takes = |state: &G::State| state.takes_place() && waits_in(state).is_none();
        self.runs() && self.coming(takes)
    }

    /// Whether a step is due.
    fn runs(&self) -> bool {
        match self {
            Self::Begins(_) | Self::Reopens(_) => true,
            Self::Open(handle) => {
                handle.view(|view| view.given_up.is_none() && !G::due(&view.state, &[]).is_empty())
            }
            Self::Over(_) => false,
        }
    }
}

/// A run that a caller found.
pub(super) struct Found<G: Saga<State: RunState>> {
    pub(super) id: IdOf<G>,
    pub(super) run: KeptRun<G>,
    pub(super) view: SagaView<G>,
}

/// See the module.
pub(super) struct Table<G: Saga<State: RunState>> {
    /// Locked for a look or a change, never across an await.
    runs: Mutex<BTreeMap<IdOf<G>, KeptRun<G>>>,
    /// Told whenever a run has come to rest.
    news: watch::Sender<()>,
}

impl<G: Saga<State: RunState>> Default for Table<G> {
    fn default() -> Self {
        Self { runs: Mutex::default(), news: watch::channel(()).0 }
    }
}

impl<G: Saga<State: RunState>> Table<G> {
    /// Told from now on whenever a run has come to rest.
    pub(super) fn rests(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Keeps a run that was read from the journal.
    pub(super) fn restore(&self, id: IdOf<G>, log: Log<G::State>) {
        let Some(handle) = SagaHandle::<G>::new(log) else { return };
        let run = KeptRun::Open(handle);
        let rests = run.state(|state| state.status().is_over()) == Some(true) && !run.runs();
        self.put(id, run);
        if rests {
            self.rest(id);
        }
    }

    /// Takes a place for a run that is going to be written.
    ///
    /// # Errors
    /// `too_many_runs`; `internal` for an id that is there.
    pub(super) fn admit(
        &self,
        id: IdOf<G>,
        begun: &G::State,
        max_running: usize,
        allowance: usize,
    ) -> Result<(), ToolError> {
        let mut runs = lock(&self.runs);
        if runs.contains_key(&id) {
            let message = format!("the {} {id} was begun before", G::State::LABEL);
            return Err(ToolError::internal(message));
        }
        has_room::<G>(&runs, begun, max_running, allowance)?;
        runs.insert(id, KeptRun::Begins(begun.clone()));
        Ok(())
    }

    /// Takes a place for a run that is over and is going to go on; false for one that is not over.
    ///
    /// # Errors
    /// `too_many_runs`.
    pub(super) fn readmit(
        &self,
        id: IdOf<G>,
        max_running: usize,
        allowance: usize,
    ) -> Result<bool, ToolError> {
        let mut runs = lock(&self.runs);
        let Some(KeptRun::Over(state)) = runs.get(&id) else { return Ok(false) };
        let state = state.clone();
        has_room::<G>(&runs, &state, max_running, allowance)?;
        runs.insert(id, KeptRun::Reopens(state));
        Ok(true)
    }

    /// Gives the place back of a run that does not go on after all.
    pub(super) fn stays_over(&self, id: IdOf<G>) {
        let mut runs = lock(&self.runs);
        if let Some(KeptRun::Reopens(state)) = runs.get(&id).cloned() {
            runs.insert(id, KeptRun::Over(state));
        }
    }

    pub(super) fn put(&self, id: IdOf<G>, run: KeptRun<G>) {
        lock(&self.runs).insert(id, run);
    }

    /// Takes a run out.
    pub(super) fn take(&self, id: IdOf<G>) -> Option<KeptRun<G>> {
        lock(&self.runs).remove(&id)
    }

    /// Handle of a run that is open.
    pub(super) fn handle(&self, id: IdOf<G>) -> Option<SagaHandle<G>> {
        match lock(&self.runs).get(&id)? {
            KeptRun::Open(handle) => Some(handle.clone()),
            _ => None,
        }
    }

    /// Runs that are open.
    pub(super) fn open(&self) -> Vec<(IdOf<G>, SagaHandle<G>)> {
        let runs = lock(&self.runs);
        let open = runs.iter().filter_map(|(id, run)| match run {
            KeptRun::Open(handle) => Some((*id, handle.clone())),
            _ => None,
        });
        open.collect()
    }

    /// Keeps of a run that is over what is shown of it.
    pub(super) fn rest(&self, id: IdOf<G>) {
        let mut runs = lock(&self.runs);
        let Some(run) = runs.get_mut(&id) else { return };
        if let KeptRun::Open(handle) = run {
            let mut state = handle.state();
            state.rest();
            *run = KeptRun::Over(state);
        }
        drop(runs);
        self.news.send_replace(());
    }

    /// Waits until a run takes no steps any more, or is gone.
    pub(super) async fn rested(&self, id: IdOf<G>) {
        let mut news = self.news.subscribe();
        loop {
            let rests = match lock(&self.runs).get(&id) {
                None | Some(KeptRun::Over(_)) => true,
                Some(run) => run.is_given_up(),
            };
            // The sender is this table's.
            if rests || news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Finds a run that the caller sees.
    ///
    /// # Errors
    /// The kind's code.
    pub(super) fn find(&self, caller: RunCaller, asked: &str) -> Result<Found<G>, ToolError> {
        let found = asked.parse::<IdOf<G>>().ok().and_then(|id| {
            let run = lock(&self.runs).get(&id)?.clone();
            let view = run.view()?;
            caller.sees(view.state.user()).then_some(Found { id, run, view })
        });
        found.ok_or_else(|| {
            ToolError::not_found(Layer::Resolve, G::State::NOT_FOUND, G::State::LABEL, asked)
                .next(format!("{} shows yours", G::State::LISTED_BY))
        })
    }

    /// Lists what a caller sees, the newest first, and how many there are.
    pub(super) fn list(
        &self,
        caller: RunCaller,
        group: Option<&str>,
        limit: usize,
    ) -> (ListedRuns<G>, usize) {
        let runs = lock(&self.runs);
        let is_meant = |state: &G::State| {
            let meant = group.is_none_or(|group| state.group() == group);
            (meant && caller.sees(state.user())).then(|| state.began_at())
        };
        let meant = runs.iter().filter_map(|(id, run)| Some((run.state(is_meant)??, *id)));
        let mut meant: Vec<_> = meant.collect();
        meant.sort_unstable_by(|one, other| other.cmp(one));
        let total = meant.len();
        let page =
            meant.into_iter().take(limit).filter_map(|(_, id)| Some((id, runs.get(&id)?.view()?)));
        (page.collect(), total)
    }

    /// Takes out what is over for too long, and the oldest of whoever has the most, as far as there are too many.
    pub(super) fn expire(&self, options: &RunOptions, now: DateTime<Utc>) -> Vec<IdOf<G>> {
        let mut runs = lock(&self.runs);
        let over = runs.iter().filter_map(|(id, run)| match run {
            KeptRun::Over(state) => {
                Some((state.ended_at().unwrap_or(now), *id, state.user(), state.retention()))
            }
            _ => None,
        });
        let mut over: Vec<_> = over.collect();
        // The last that ended first.
        over.sort_unstable_by_key(|(ended, id, ..)| Reverse((*ended, *id)));
        let (mut gone, mut kept, mut of_users) = (Vec::new(), 0, HashMap::<User, Vec<_>>::new());
        let mut of_groups = HashMap::<_, usize>::new();
        for (ended, id, user, retention) in over {
            let is_older = |days: u32| {
                let age = Duration::from_secs(u64::from(days) * SECS_A_DAY);
                (now - ended).to_std().is_ok_and(|since| since > age)
            };
            let expires = match retention {
                RunRetention::Usual => is_older(options.kept_days),
                RunRetention::Days(days) => is_older(days),
                RunRetention::Always => false,
                RunRetention::Newest(most) => {
                    let group = runs.get(&id).map(|run| run.coming(RunState::group));
                    let newer = of_groups.entry((user, group)).or_default();
                    *newer += 1;
                    *newer > most
                }
            };
            if expires {
                gone.push(id);
            } else {
                kept += 1;
                of_users.entry(user).or_default().push(id);
            }
        }
        while kept > options.kept {
            let most = of_users.values_mut().max_by_key(|ids| ids.len());
            gone.extend(most.and_then(Vec::pop));
            kept -= 1;
        }
        gone.iter().for_each(|id| drop(runs.remove(id)));
        gone
    }
}

/// Refuses a run for which there is no room.
fn has_room<G: Saga<State: RunState>>(
    runs: &BTreeMap<IdOf<G>, KeptRun<G>>,
    begun: &G::State,
    max_running: usize,
    allowance: usize,
) -> Result<(), ToolError> {
    let (user, queue) = (begun.user(), begun.queue());
    let (mut open, mut running, mut queued) = ([0, 0], [0, 0], 0);
    for run in runs.values() {
        let Some(owner) = run.open_user() else { continue };
        let is_before = |state: &G::State| {
            let names = queue.zip(waits_in(state));
            names.is_some_and(|(own, other)| own.name == other.name)
        };
        queued += usize::from(run.coming(is_before));
        let own = usize::from(owner == user);
        open = [open[0] + 1, open[1] + own];
        if run.takes_place() {
            running = [running[0] + 1, running[1] + own];
        }
    }
    let needs_place = begun.takes_place() && queue.is_none();
    let bound = |most| if needs_place { most } else { usize::MAX };
    let waits = queue.map(|queue| format!("wait in the queue `{:.40}`", queue.name));
    let bounds = [
        (running[0], bound(max_running), "run"),
        (running[1], bound(share(max_running).min(allowance)), "of one user run"),
        (queued, MOST_QUEUED, waits.as_deref().unwrap_or_default()),
        (open[0], MOST_OPEN, "are not over"),
        (open[1], share(MOST_OPEN), "of one user are not over"),
    ];
    let Some((_, most, what)) = bounds.into_iter().find(|(count, most, _)| count >= most) else {
        return Ok(());
    };
    let message = format!("{most} {}s {what}, as many as may", G::State::LABEL);
    Err(ToolError::new(Layer::Actor, codes::TOO_MANY_RUNS, message)
        .next("wait for one to end, or cancel one; nothing was begun")
        .retryable()
        .detail("limit", most))
}

/// Queue of a run that has not had its first place in that.
fn waits_in<S: RunState>(state: &S) -> Option<&RunQueue> {
    state.queue().filter(|_| state.status() == RunStatus::Pending)
}

/// Part of a limit that a single user may take.
pub(super) fn share(limit: usize) -> usize {
    limit.saturating_mul(3).div_ceil(4)
}
