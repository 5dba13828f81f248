//! Halting a machine: paused in memory, or parked on the disk.

pub(crate) mod park;
pub(crate) mod standstill;
pub(crate) mod wake;

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    activity::Activity,
    link_state,
    machine::identity,
    messages::ParkMsg,
    phase::{Phase, Want},
    records::Record,
    state::Workspace,
};

/// Time to reach the guest of a resumed machine.
const GUEST_PATIENCE: Duration = Duration::from_secs(10);

tools! { pub FAMILY: "snapshots & forking" for Workspace, addressed workspace by workspace_id;
    workspace_park: WorkspacePark => Parked = park::park {
        title: "Park a workspace", timeout_secs: 300, told_by: Some("workspace_info"),
    };
    workspace_pause: WorkspacePause => Halted = pause {
        title: "Pause a workspace",
    };
    workspace_resume: WorkspaceResume => Halted = resume {
        title: "Resume a workspace", timeout_secs: 300,
    };
}

/// Put a virtual machine to sleep: its memory goes to the host's disk and no process is left.
/// Whatever is wanted of it next wakes it, and everything inside goes on where it was.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspacePark {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// A parked workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Parked {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `parked`.
    pub state: Phase,
    /// Bytes of its memory on the host's disk.
    pub memory_bytes: u64,
    /// How long it took.
    pub took_ms: u64,
}

/// Halt a running workspace: its processes stand still and lose nothing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspacePause {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// Let a paused workspace go on, or wake a parked one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceResume {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// The state after a pause or resume.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Halted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `paused` or `running`.
    pub state: Phase,
    /// resume: why the guest's clock, which stood still too, was not set to the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_error: Option<String>,
}

/// `workspace_pause`.
///
/// # Errors
/// When the workspace does not run, or its kind cannot be paused.
pub(crate) fn pause(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspacePause,
) -> Result<Reply<Halted>, ToolError> {
    let turned = turn(state, Want::Pause, Phase::Paused)?;
    state.sleeping.rests = false;
    Ok(Reply::later(turned))
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
    state.status.activity = Activity::Pausing;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let (from, planned) = (state.status.phase, plan.clone());
    let (mut link_state, rests) = (state.link.subscribe(), state.sleeping.rests);
    let (paused, rested) = (to == Phase::Paused, state.ledger.rests);
    let turned = state.to_its_end(async move {
        let turned = async {
            // Before the pause, which the next daemon judges by it: one that a person asked for, too.
            if paused && rests != rested {
                workspace.note(Record::RestSet { rests }).await?;
            }
            match paused {
                true => driver.halt(&handle).await?,
                false => driver.go_on(&handle).await?,
            }
            if rested && !paused {
                workspace.note(Record::RestSet { rests: false }).await?;
            }
            Ok::<_, ToolError>(())
        };
        let turned = turned.await;
        workspace.settle(if turned.is_ok() { to } else { from }, None);
        let _actor_gone = workspace.actor.send(ParkMsg::Turned(turned.clone().err()).into());
        turned?;
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
