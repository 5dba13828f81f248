//! Keeping cards current: a worker of each team that is ready.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use hivekeep_kernel::{TeamId, WorkspaceId, lock, workers::Workers};
use hivekeep_store::{Subscription, SubscriptionItem};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Known, Loads, outcome, refresh};
use crate::{
    api::TeamCards,
    codes,
    records::State,
    shared::{OnBehalfOf, TeamShared},
};

/// Time within which changes count as one; changes of tasks, within [`AGAIN`].
const TOGETHER: Duration = Duration::from_millis(200);
/// Pause before members that are on their way are looked at again, and between attempts after a failure;
/// doubled up to the longest.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Time limit of one look at the members.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that may wait while cards are written.
const BACKLOG: usize = 256;

/// Last status of a team's cards; shared with all that answer for the team.
#[derive(Debug, Clone)]
pub(crate) struct CardsStatus(Arc<Mutex<TeamCards>>);

impl Default for CardsStatus {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(TeamCards::Pending)))
    }
}

impl CardsStatus {
    pub(crate) fn get(&self) -> TeamCards {
        lock(&self.0).clone()
    }

    pub(crate) fn set(&self, cards: TeamCards) {
        *lock(&self.0) = cards;
    }
}

/// The worker of a team. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CardWorker {
    stop: CancellationToken,
    worker: TaskTracker,
}

/// Cards and events of a team that gets ready: the cards were written before it was.
pub(crate) struct CardFeed {
    /// Subscription from before the members were looked at.
    events: Subscription,
    pub(crate) known: Known,
}

impl CardFeed {
    /// Subscribes to events; to be called before anything is looked at, so that none is missed in between.
    pub(crate) fn new(shared: &TeamShared) -> Self {
        Self { events: shared.events.subscribe(None, BACKLOG), known: Known::default() }
    }
}

/// A team whose cards are kept.
pub(crate) struct CardSource {
    pub(crate) shared: Arc<TeamShared>,
    pub(crate) state: Arc<State>,
    pub(crate) loads: Box<Loads>,
    pub(crate) status: CardsStatus,
}

impl CardWorker {
    /// Keeps the cards of a ready team until it is stopped. Unless they were written just now, they
    /// are made whole first: files may be missing or old. It takes the place of the one before it.
    pub(crate) fn begin(
        workers: &Workers,
        team: CardSource,
        begun: Option<CardFeed>,
        before: Option<Self>,
    ) -> Self {
        let (stop, worker) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        let work = async move {
            if let Some(before) = before {
                before.stop().await;
            }
            stopped.run_until_cancelled(keep(&team, begun)).await;
        };
        let _detached = workers.spawn(worker.track_future(work));
        worker.close();
        Self { stop, worker }
    }

    /// Returns when nothing more is written. Writes given to the vault before are done before those given
    /// after this.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.worker.wait().await;
    }
}

/// Scope of the next look, for all members at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The tasks alone; that costs no call.
    Tasks,
    /// The workspaces, too.
    Members,
}

async fn keep(team: &CardSource, begun: Option<CardFeed>) {
    let CardSource { shared, state, loads, status } = team;
    let (written, mut begun) = match begun {
        Some(begun) => (status.get() == TeamCards::Written, begun),
        None => (false, CardFeed::new(shared)),
    };
    let CardFeed { events, known } = &mut begun;
    let mut due = (!written).then_some(Due::Members);
    let (mut again, mut busy) = (AGAIN, false);
    loop {
        if let Some(due) = due {
            let caller = (due == Due::Members).then(|| OnBehalfOf::own(state.owner, PATIENCE));
            let done = refresh(shared, caller.as_ref(), state, loads, known).await;
            status.set(outcome(&done));
            busy = match done {
                Ok(busy) => busy,
                // The vault stays disabled until the daemon is configured otherwise.
                Err(error) if error.is(codes::VAULT_DISABLED) => return,
                Err(error) => {
                    tracing::warn!(team = %state.plan.name, %error, "cards are not current");
                    false
                }
            };
        }
        let failed = status.get() != TeamCards::Written;
        let (pause, next) = match (failed || known.moving(), busy) {
            (true, _) => (again, Due::Members),
            // No event reports that a task has begun to run.
            (false, true) => (again, Due::Tasks),
            (false, false) => (Duration::MAX, Due::Members),
        };
        let news = tokio::select! {
            news = changed(events, state) => {
                again = AGAIN;
                news
            }
            () = sleep(pause) => {
                again = (2 * again).min(LONGEST);
                next
            }
        };
        sleep(if news == Due::Tasks { AGAIN } else { TOGETHER }).await;
        due = Some(news.max(drained(events, state)));
    }
}

/// Waits for an event about a member.
async fn changed(events: &mut Subscription, state: &State) -> Due {
    while let Ok(delivery) = events.next().await {
        if let Some(due) = concerns(&delivery, state) {
            return due;
        }
    }
    // The journal has ended, and with it the daemon.
    std::future::pending().await
}

/// Takes the events that arrived meanwhile; one look is enough for all of them.
fn drained(events: &mut Subscription, state: &State) -> Due {
    let mut all = Due::Tasks;
    while let Some(Ok(delivery)) = events.next().now_or_never() {
        all = all.max(concerns(&delivery, state).unwrap_or(Due::Tasks));
    }
    all
}

/// Scope of the look that an event asks for, if a card may be out of date. Missed events may have
/// been about anything.
fn concerns(delivery: &SubscriptionItem, state: &State) -> Option<Due> {
    let SubscriptionItem::Event(event) = delivery else { return Some(Due::Members) };
    let begins = |kinds: &[&str]| kinds.iter().any(|kind| event.kind.starts_with(kind));
    let members = state.workspaces.as_deref().unwrap_or(&[]);
    if begins(&["workspace.", "network."]) {
        let id: Option<WorkspaceId> = event.subject.parse().ok();
        return id.filter(|id| members.contains(id)).map(|_| Due::Members);
    }
    let of_team = || event.subject.parse().is_ok_and(|id: TeamId| id == state.plan.id);
    (begins(&["task."]) && of_team()).then_some(Due::Tasks)
}

/// Sweeps once, patiently: at a start the vault may come after the teams.
pub(crate) async fn sweep(shared: Arc<TeamShared>, teams: BTreeSet<TeamId>) {
    let (born, mut again) = (TeamId::new(), AGAIN);
    while let Err(error) = super::sweep(&shared, &teams, born).await {
        if error.is(codes::VAULT_DISABLED) || again > LONGEST {
            tracing::debug!(%error, "cards of earlier teams were not looked for");
            return;
        }
        sleep(again).await;
        again *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Plan;
    use hivekeep_kernel::SessionId;
    use hivekeep_store::{Journal, NewEvent};

    fn state(member: WorkspaceId) -> State {
        let plan = Plan {
            id: TeamId::new(),
            name: "crew".to_owned(),
            owner: SessionId::new(),
            user: None,
            parent: None,
            parent_name: None,
            max_vms: 1,
            at: chrono::Utc::now(),
            members: Vec::new(),
            source: None,
        };
        State { workspaces: Some(vec![member]), ..State::new(plan) }
    }

    #[tokio::test]
    async fn what_was_told_by_the_time_of_a_look_needs_no_other_one() {
        let dir = tempfile::TempDir::new().expect("a folder");
        let options = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await;
        let (journal, _) = opened.expect("no panic").expect("it opens");
        let mut events = journal.events().subscribe(None, BACKLOG);
        let member = WorkspaceId::new();
        let state = state(member);
        let tell = async |kind: &str, subject: String| {
            let event = NewEvent { kind: kind.to_owned(), subject, data: serde_json::json!({}) };
            journal.events().publish(event).await.expect("published");
        };
        tell("workspace.started", WorkspaceId::new().to_string()).await;
        tell("task.put", state.plan.id.to_string()).await;
        assert_eq!(changed(&mut events, &state).await, Due::Tasks);
        for _ in 0..20 {
            tell("workspace.link", member.to_string()).await;
        }
        tell("task.ended", state.plan.id.to_string()).await;
        tell("message.put", state.plan.id.to_string()).await;
        assert_eq!(drained(&mut events, &state), Due::Members);
        assert_eq!(drained(&mut events, &state), Due::Tasks, "there is nothing more");
        assert!(events.next().now_or_never().is_none());
        journal.close().await;
    }
}
