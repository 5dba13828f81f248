//! Keeping cards current: a worker of each team that is ready.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hivekeep_kernel::{TeamId, WorkspaceId, workers::Workers};
use hivekeep_store::{Delivery, Event, Subscription};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{DISABLED, Known, TeamCards, outcome, refresh};
use crate::{
    house::{For, House},
    records::State,
};

/// What happens within this time is one change.
const TOGETHER: Duration = Duration::from_millis(200);
/// Until members that are on their way are looked at again, and between attempts after a failure;
/// doubled up to the longest.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// For one look at the members.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that may wait while cards are written.
const BACKLOG: usize = 256;

/// What became of the cards last; shared with whoever answers for the team.
#[derive(Debug, Clone)]
pub(crate) struct Told(Arc<Mutex<TeamCards>>);

impl Default for Told {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(TeamCards::Pending)))
    }
}

impl Told {
    pub(crate) fn get(&self) -> TeamCards {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, cards: TeamCards) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cards;
    }
}

/// The worker of a team. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keeping {
    stop: CancellationToken,
    worker: TaskTracker,
}

impl Keeping {
    /// Keeps the cards of a ready team until it is stopped. They are made whole first: files may
    /// be missing or old. It takes the place of the one before it.
    pub(crate) fn begin(
        workers: &Workers,
        house: Arc<House>,
        state: Arc<State>,
        told: Told,
        before: Option<Self>,
    ) -> Self {
        let (stop, worker) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        let work = async move {
            if let Some(before) = before {
                before.stop().await;
            }
            stopped.run_until_cancelled(keep(&house, &state, &told)).await;
        };
        let _detached = workers.spawn(worker.track_future(work));
        worker.close();
        Self { stop, worker }
    }

    /// Returns when nothing more is written. What the vault was told before is done before what
    /// it is told after this.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.worker.wait().await;
    }
}

async fn keep(house: &Arc<House>, state: &State, told: &Told) {
    let mut events = house.events.subscribe(None, BACKLOG);
    let (mut known, mut again) = (Known::new(), AGAIN);
    loop {
        let whom = For::own(state.owner, PATIENCE);
        let done = refresh(house, &whom, state, &mut known).await;
        told.set(outcome(&done));
        let settled = match &done {
            Ok(moving) => !moving,
            // It stays so until the daemon is configured otherwise.
            Err(error) if error.code == DISABLED => return,
            Err(error) => {
                tracing::warn!(team = %state.plan.name, %error, "cards are not current");
                false
            }
        };
        let pause = if settled { Duration::MAX } else { again };
        tokio::select! {
            () = changed(&mut events, state) => again = AGAIN,
            () = sleep(pause) => again = (2 * again).min(LONGEST),
        }
        sleep(TOGETHER).await;
    }
}

/// Waits until something was told of a member.
async fn changed(events: &mut Subscription, state: &State) {
    while let Ok(delivery) = events.next().await {
        if concerns(&delivery, state) {
            return;
        }
    }
    // The journal has ended, and with it the daemon.
    std::future::pending().await
}

/// Whether something may be told of a member that the card does not say. Of what was missed,
/// nothing is known.
fn concerns(delivery: &Delivery, state: &State) -> bool {
    match delivery {
        Delivery::Missed { .. } => true,
        Delivery::Event(event) => is_of_member(event, state.workspaces.as_deref().unwrap_or(&[])),
    }
}

fn is_of_member(event: &Event, members: &[WorkspaceId]) -> bool {
    let kinds = ["workspace.", "network."];
    kinds.iter().any(|kind| event.kind.starts_with(kind))
        && event.subject.parse().is_ok_and(|id: WorkspaceId| members.contains(&id))
}

/// Sweeps once, patiently: at a start the vault may come after the teams.
pub(crate) async fn sweep(house: Arc<House>, teams: BTreeSet<TeamId>) {
    let (born, mut again) = (TeamId::new(), AGAIN);
    while let Err(error) = super::sweep(&house, &teams, born).await {
        if error.code == DISABLED || again > LONGEST {
            tracing::debug!(%error, "cards of earlier teams were not looked for");
            return;
        }
        sleep(again).await;
        again *= 2;
    }
}
