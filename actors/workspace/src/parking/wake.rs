//! Waking a parked machine: once, however many want it, in a turn among those of all workspaces.
//!
//! Messages that need the guest of a parked machine wake it, and are held back meanwhile, as are those
//! that come while it is being parked. Each call keeps its own deadline; calls that nobody waits for any
//! more wake nothing.
//!
//! ```text
//! Parked ─► a turn ─► quota ─► StartWanted ─► Launched ─► Woken ─► it goes on ─► Up
//!    ▲                            │ failed: nothing of the memory is lost     │ failed
//!    └────────────────────────────┘                                           └──► Crashed
//! ```
//! Up to [`Record::Woken`] the machine is halted and has written nothing; a failure, or the next
//! daemon, ends it and the memory stays valid. After that the disk changes, and the memory is void.

use std::time::Duration;

use hivekeep_kernel::{Layer, Resources, SessionId, ToolError};
use serde_json::json;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    activity::Activity,
    codes,
    handle::WorkspaceHandle,
    ledger::{DiskChange, ParkedMemory},
    machine::{
        boot::{Start, StartMemory},
        bring_up::{bring_up_again, fail_start},
        take_down,
    },
    messages::{Msg, ParkMsg},
    parking::standstill,
    phase::{Phase, Want},
    records::{Planned, Record, StopHow},
    state::{Workspace, waiting::HeldCall},
};

/// Time for the mailbox to say whether anybody still wants the wake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Holds back a message that needs the guest, if the machine is parked, parking or waking; returns it
/// otherwise.
pub(crate) fn hold_back(state: &mut Workspace, message: Msg) -> Option<Msg> {
    state.sleeping.used_at = Instant::now();
    let moves = match state.status.activity {
        Activity::Parking | Activity::Waking => true,
        Activity::Pausing | Activity::Reattaching => state.sleeping.rests,
        _ => false,
    };
    if state.status.phase != Phase::Parked && !standstill::rests(state) && !moves {
        return Some(message);
    }
    wait_awake(state, HeldCall::Message(Box::new(message)));
    None
}

/// Queues a caller until the machine is awake, and wakes it if that is due.
fn wait_awake(state: &mut Workspace, waiting: HeldCall) {
    if state.sleeping.queue(waiting, || state.status.phase.busy()) {
        wake_if_wanted(state);
    }
}

/// Wakes the machine, or waits for a wake under way; the answer is how long that took in milliseconds.
pub(crate) fn until_awake(
    state: &mut Workspace,
) -> impl Future<Output = Result<u64, ToolError>> + Send + use<> {
    let (reply, awake) = oneshot::channel();
    wait_awake(state, HeldCall::Awake(reply));
    async move { awake.await.map_err(|_| ToolError::internal("the workspace's actor ended"))? }
}

/// Wakes the machine if somebody waits for that and nothing prevents it now.
pub(crate) fn wake_if_wanted(state: &mut Workspace) {
    let rests = standstill::rests(state);
    if state.status.phase != Phase::Parked && !rests
        || state.status.activity != Activity::Idle
        || state.status.adopting
    {
        // The work under way checks again at its end.
        return;
    }
    if !state.sleeping.is_awaited() {
        return;
    }
    if rests {
        return standstill::end(state);
    }
    let next = match state.handle.shared.may_start().and_then(|()| state.on(Want::Wake)) {
        Ok(next) => next,
        Err(error) => return awake(state, Err(error)),
    };
    let Some(parked) = state.ledger.parked.as_deref().cloned() else { return };
    state.status.activity = Activity::Waking;
    state.set_phase(next);
    let memory = StartMemory::Own(parked.plan);
    let waking = Waking {
        workspace: state.handle.clone(),
        plan: state.ledger.plan.clone(),
        owner: state.ledger.owner,
        start: Start { memory: Some(memory), ..Start::of(&state.ledger) },
        change: state.ledger.change.clone(),
        parked,
    };
    let actor = state.me.address.clone();
    let woken = state.to_its_end(async move {
        let woken = waking.wake().await;
        let _actor_gone = actor.send(ParkMsg::Woken(woken).into());
        Ok(())
    });
    drop(woken);
}

/// Takes up that a park is over, one way or the other.
pub(crate) fn park_ended(state: &mut Workspace) {
    state.status.finished(Activity::Parking);
    if state.ledger.parked.is_some() && state.machine.watched.is_none() {
        state.set_phase(Phase::Parked);
        return wake_if_wanted(state);
    }
    // The workspace goes on, or was stopped meanwhile: held messages are judged by that.
    awake(state, Ok(0));
}

/// Takes up that a wake is over: milliseconds that it took, or `None` if nobody wanted it any more.
pub(crate) fn woken(state: &mut Workspace, outcome: Result<Option<u64>, ToolError>) {
    state.status.finished(Activity::Waking);
    match outcome {
        Ok(Some(took_ms)) => awake(state, Ok(took_ms)),
        // Given up since nobody waited; calls that came since then begin a new wake.
        Ok(None) => wake_if_wanted(state),
        Err(error) => awake(state, Err(error)),
    }
}

pub(super) fn awake(state: &mut Workspace, took_ms: Result<u64, ToolError>) {
    state.sleeping.awake(&state.me.address, took_ms);
}

/// Work of one wake.
struct Waking {
    workspace: WorkspaceHandle,
    plan: Planned,
    owner: Option<SessionId>,
    start: Start,
    change: Option<DiskChange>,
    parked: ParkedMemory,
}

impl Waking {
    /// Wakes the machine: milliseconds that it took, or `None` if nobody wanted it any more.
    async fn wake(self) -> Result<Option<u64>, ToolError> {
        let Self { workspace, plan, owner, start, change, parked } = self;
        let begun = std::time::Instant::now();
        let shared = &workspace.shared;
        let turn = shared.wakes.acquire().await;
        let asked = workspace.actor.ask(PATIENCE, |reply| ParkMsg::StillWanted(reply).into());
        if !asked.await.unwrap_or(false) {
            workspace.settle(Phase::Parked, None);
            return Ok(None);
        }
        let memory = plan.spec.memory();
        let reserved = match owner {
            Some(owner) => shared.daemon.sessions.reserve(owner, memory).await,
            None => Ok(()),
        };
        if let Err(error) = reserved {
            workspace.settle(Phase::Parked, None);
            return Err(error);
        }
        let ended = async {
            if let Some(left) = &parked.left {
                shared.driver(plan.spec.isolation)?.kill(left).await?;
            }
            bring_up_again(&workspace, &plan, start, change, &workspace.internal_cx()).await
        };
        let woken = ended.await;
        drop(turn);
        match woken {
            Ok(_) => {
                let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                workspace
                    .publish("workspace.woken", json!({ "name": plan.name, "took_ms": took_ms }));
                workspace.settle(Phase::Running, None);
                Ok(Some(took_ms))
            }
            Err(error) => Err(not_woken(&workspace, &plan, owner, memory, error).await),
        }
    }
}

/// Leaves a machine that could not be woken parked, if it has not gone on, and says what can be done.
async fn not_woken(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    owner: Option<SessionId>,
    memory: Resources,
    error: ToolError,
) -> ToolError {
    let recorded = workspace.shared.logs.state(workspace.id);
    if recorded.is_none_or(|ledger| ledger.parked.is_none()) {
        fail_start(workspace, plan, &error).await;
        return error;
    }
    if let Some(owner) = owner {
        workspace.shared.daemon.sessions.release(owner, memory);
    }
    let undone = async {
        take_down::kill_machine(workspace, plan).await?;
        let record = Record::Stopped { at: chrono::Utc::now(), how: StopHow::Killed };
        let event = ("workspace.wake_failed", json!({ "name": plan.name, "error": error.code }));
        workspace.commit(vec![record], Some(event)).await
    };
    let (code, reason) = (error.code.clone(), error.to_text());
    match undone.await {
        Ok(()) => workspace.settle(Phase::Parked, Some(reason.clone())),
        Err(left) => {
            let reason = format!("{reason}; and it could not be undone: {left}");
            workspace.settle(Phase::Crashed, Some(reason));
        }
    }
    if error.retryable {
        return error;
    }
    ToolError::new(Layer::Machine, codes::NOT_WOKEN, format!("it could not be woken: {reason}"))
        .next("workspace_start with from_disk gives its memory up and starts it from its disk")
        .detail("code", code.to_string())
}
