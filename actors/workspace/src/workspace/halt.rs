//! `workspace_pause` and `workspace_resume`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError};
use serde_json::json;

use super::{Workspace, identity, wake};
use crate::{
    activity::Activity,
    api::snapshots::{Halted, WorkspacePause, WorkspaceResume},
    link_state,
    messages::WorkMsg,
    phase::{Phase, Want, no_snapshots},
};

/// Time to reach the guest of a resumed machine.
const GUEST_PATIENCE: Duration = Duration::from_secs(10);

/// `workspace_pause`.
///
/// # Errors
/// When the workspace does not run, or its kind cannot be paused.
pub(crate) fn pause(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspacePause,
) -> Result<Reply<Halted>, ToolError> {
    Ok(Reply::later(turn(state, Want::Pause, Phase::Paused)?))
}

/// `workspace_resume`.
///
/// # Errors
/// When the workspace is not paused.
pub(crate) fn resume(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspaceResume,
) -> Result<Reply<Halted>, ToolError> {
    if state.status.phase != Phase::Parked && state.status.activity != Activity::Waking {
        return Ok(Reply::later(turn(state, Want::Resume, Phase::Running)?));
    }
    let (awake, plan) = (wake::until_awake(state), state.ledger.plan.clone());
    Ok(Reply::later(async move {
        awake.await?;
        Ok(Halted {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            state: Phase::Running,
            clock_error: None,
        })
    }))
}

/// Pauses or resumes the machine, to the end whether or not anybody waits.
pub(super) fn turn(
    state: &mut Workspace,
    want: Want,
    to: Phase,
) -> Result<impl Future<Output = Result<Halted, ToolError>> + Send + use<>, ToolError> {
    state.on(want)?;
    let handle = state.ledger.handle().cloned().ok_or_else(|| state.status.phase.busy())?;
    let driver = state.handle.shared.driver(state.ledger.plan.spec.isolation)?;
    driver.snapshots().ok_or_else(no_snapshots)?;
    state.status.activity = Activity::Pausing;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let (from, planned) = (state.status.phase, plan.clone());
    let mut link_state = state.link.subscribe();
    let turned = state.to_its_end(async move {
        let snapshots = driver.snapshots().ok_or_else(no_snapshots);
        let turned = match (snapshots, to) {
            (Ok(snapshots), Phase::Paused) => {
                snapshots.pause(&handle).await.map_err(ToolError::from)
            }
            (Ok(snapshots), _) => snapshots.resume(&handle).await.map_err(ToolError::from),
            (Err(error), _) => Err(error),
        };
        workspace.settle(if turned.is_ok() { to } else { from }, None);
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Pausing).into());
        turned?;
        let paused = to == Phase::Paused;
        let event = if paused { "workspace.paused" } else { "workspace.resumed" };
        workspace.publish(event, json!({}));
        if paused {
            return Ok(None);
        }
        let clock = async {
            let link = link_state::usable(&mut link_state, GUEST_PATIENCE).await?;
            identity::configure(&link, &planned, false).await
        };
        Ok(clock.await.err().map(|error| error.to_text()))
    });
    Ok(async move {
        let clock_error = turned.await?;
        Ok(Halted { workspace_id: plan.id, name: plan.name.to_string(), state: to, clock_error })
    })
}
