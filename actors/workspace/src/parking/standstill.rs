//! Standstill until somebody uses the workspace: a pause that the daemon decided on, and that any use ends.
//!
//! ```text
//! RestSet(true) ─► paused ─► something is wanted of the guest, or whoever asked for it says so ─► goes on ─► RestSet(false)
//! ```
//! The next daemon finds the machine paused, and by the record that any use may have it go on. A pause that a person
//! asked for is ended by a person alone.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use hivekeep_kernel::{SessionId, ToolError, WorkspaceId};
use hivekeep_ports::WorkspaceStandstill;

use super::{park, turn, wake};
use crate::{
    activity::Activity,
    messages::{ParkMsg, Standstill, StandstillReply},
    phase::{Phase, Want},
    shared::Shared,
    state::Workspace,
};

/// Time for a machine to come to a standstill, or to be saved.
const PATIENCE: Duration = Duration::from_secs(120);

/// Begins or ends a standstill on behalf of the owner.
pub(super) fn ask(
    state: &mut Workspace,
    owner: SessionId,
    wanted: Standstill,
    reply: StandstillReply,
) {
    let begun = state.authorize_session(owner).and_then(|()| begin(state, wanted));
    match begun {
        Ok(work) => {
            let _detached = state.ops.spawn(async move {
                let _asker_gone = reply.send(work.await);
            });
        }
        Err(error) => drop(reply.send(Err(error))),
    }
}

fn begin(
    state: &mut Workspace,
    wanted: Standstill,
) -> Result<BoxFuture<'static, Result<(), ToolError>>, ToolError> {
    if matches!(state.status.activity, Activity::Reattaching | Activity::Pausing) {
        // The machine may be found standing still, or its pause or the end of one is under way.
        return Err(state.status.phase.busy());
    }
    use Phase::{Crashed, Failed, Parked, Paused, Stopped};
    let stands = matches!(state.status.phase, Paused | Parked | Stopped | Crashed | Failed);
    let done = || async { Ok(()) }.boxed();
    Ok(match wanted {
        Standstill::Over if !rests(state) => done(),
        Standstill::Over => {
            turn(state, Want::Resume, Phase::Running)?.map(|it| it.map(drop)).boxed()
        }
        _ if stands => done(),
        Standstill::Saved if is_parkable(state) => {
            park::begin_park(state)?.map(|it| it.map(drop)).boxed()
        }
        Standstill::Saved | Standstill::Halted => {
            state.sleeping.rests = true;
            let turned = turn(state, Want::Pause, Phase::Paused);
            // The pause of somebody else that is under way is not changed.
            let turned = turned.inspect_err(|_| state.sleeping.rests = false)?;
            turned.map(|it| it.map(drop)).boxed()
        }
    })
}

fn is_parkable(state: &Workspace) -> bool {
    let driver = state.handle.shared.driver(state.ledger.plan.spec.isolation);
    driver.is_ok_and(|driver| driver.snapshots().is_some()) && state.ledger.plan.volumes.is_empty()
}

/// Whether the machine stands still until it is used.
pub(super) fn rests(state: &Workspace) -> bool {
    state.sleeping.rests && state.status.phase == Phase::Paused
}

/// Has a machine that stands still go on for those who wait.
pub(super) fn end(state: &mut Workspace) {
    match turn(state, Want::Resume, Phase::Running) {
        // Its end is a message.
        Ok(work) => drop(work),
        Err(error) => wake::awake(state, Err(error)),
    }
}

/// Takes up another phase.
pub(crate) fn settled(state: &mut Workspace) {
    match state.status.phase {
        _ if !state.sleeping.rests => {}
        Phase::Paused => wake::wake_if_wanted(state),
        _ => {
            state.sleeping.rests = false;
            wake::awake(state, Ok(0));
        }
    }
}

/// Takes up that a pause or its end is over.
pub(super) fn turned(state: &mut Workspace, error: Option<ToolError>) {
    state.status.finished(Activity::Pausing);
    match error {
        Some(error) => wake::awake(state, Err(error)),
        None if rests(state) => wake::wake_if_wanted(state),
        // Held calls are judged by the phase.
        None => wake::awake(state, Ok(0)),
    }
}

/// Standstills as other families ask for them.
pub(crate) struct WorkspaceStandstillHandle(pub(crate) Arc<Shared>);

impl WorkspaceStandstillHandle {
    async fn ask(
        &self,
        owner: SessionId,
        id: WorkspaceId,
        it: Standstill,
    ) -> Result<(), ToolError> {
        let card = self.0.directory.card(&id.to_string())?;
        let ask = |reply| ParkMsg::StandStill(owner, it, reply).into();
        card.address.ask(PATIENCE, ask).await?
    }
}

#[async_trait]
impl WorkspaceStandstill for WorkspaceStandstillHandle {
    async fn halt(&self, owner: SessionId, id: WorkspaceId, saved: bool) -> Result<(), ToolError> {
        self.ask(owner, id, if saved { Standstill::Saved } else { Standstill::Halted }).await
    }

    async fn go_on(&self, owner: SessionId, id: WorkspaceId) -> Result<(), ToolError> {
        self.ask(owner, id, Standstill::Over).await
    }
}
