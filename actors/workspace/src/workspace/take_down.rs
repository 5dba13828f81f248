//! Stopping a machine, by shutdown or by force.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point};
use hivekeep_link::CallTerms;
use hivekeep_machine::{LogsOnDiscard, MachineHandle};
use hivekeep_protocol::Shutdown;
use serde_json::json;

use super::Workspace;
use crate::{
    api::lifecycle::{WorkspaceStop, WorkspaceStopped},
    handle::WorkspaceHandle,
    link_state::LinkState,
    messages::MachineMsg,
    phase::{Phase, Want},
    records::{Planned, Record, StopHow},
    snapshots::{Artifact, DiskLayers},
};

/// `workspace_stop`.
///
/// # Errors
/// When no machine runs, or other work must end first.
pub(crate) fn stop_in_order(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspaceStop,
) -> Result<Reply<WorkspaceStopped>, ToolError> {
    let next = state.on(Want::Stop)?;
    Ok(Reply::later(stop_machine(state, next)))
}

/// Stops the machine, to the end whether or not anybody waits.
pub(super) fn stop_machine(
    state: &mut Workspace,
    next: Phase,
) -> impl Future<Output = Result<WorkspaceStopped, ToolError>> + Send + use<> {
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    // The handle is from the records, not from the child that watches the machine: a failed
    // stop ended that watch, and can be tried again.
    let handle = state.ledger.handle().cloned();
    let link_state = state.link.now();
    let paused = state.status.phase == Phase::Paused;
    state.set_phase(next);
    let ops = state.ops.clone();
    async move {
        let _keeps_the_work_alive = ops;
        if let (true, Some(handle)) = (paused, &handle) {
            // The guest of a paused machine cannot shut down.
            wake(&workspace, &plan, handle).await;
        }
        let stopped = stop(&workspace, &plan, handle.as_ref(), &link_state).await;
        let how = match stopped {
            Ok(how) => how,
            Err(error) => {
                workspace.settle(Phase::Crashed, Some(error.to_text()));
                return Err(error);
            }
        };
        Ok(WorkspaceStopped {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            state: Phase::Stopped,
            how,
        })
    }
}

/// Stops the machine for the daemon's own stop.
pub(super) fn stop_for_daemon(state: &mut Workspace, done: tokio::sync::oneshot::Sender<()>) {
    let Ok(next) = state.on(Want::StopForDaemon) else {
        let _asker_gone = done.send(());
        return;
    };
    let work = stop_machine(state, next);
    let _detached = state.ops.spawn(async move {
        if let Err(error) = work.await {
            tracing::error!(%error, "a machine could not be stopped");
        }
        let _asker_gone = done.send(());
    });
}

/// Lets a paused machine go on; one that cannot is killed after the grace period.
async fn wake(workspace: &WorkspaceHandle, plan: &Planned, handle: &MachineHandle) {
    let Ok(driver) = workspace.shared.driver(plan.spec.isolation) else { return };
    let Some(snapshots) = driver.snapshots() else { return };
    if let Err(error) = snapshots.resume(handle).await {
        tracing::warn!(workspace = %workspace.id, %error, "a paused machine does not go on");
    }
}

/// Stops the machine and records it.
pub(super) async fn stop(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    handle: Option<&MachineHandle>,
    link_state: &LinkState,
) -> Result<StopHow, ToolError> {
    workspace.note(Record::StopWanted).await?;
    fault_point!("stop.after_intent");
    let how = match handle {
        None => StopHow::AlreadyGone,
        Some(handle) => end_machine(workspace, plan, handle, link_state).await?,
    };
    fault_point!("stop.after_end");
    let machine = machine_plan(workspace, plan)?;
    workspace.shared.driver(plan.spec.isolation)?.release(&machine).await?;
    let event = ("workspace.stopped", json!({ "name": plan.name, "how": how }));
    workspace.commit(vec![Record::Stopped { at: chrono::Utc::now(), how }], Some(event)).await?;
    workspace.settle(Phase::Stopped, None);
    Ok(how)
}

/// Asks the guest to power off and waits; kills the machine when the grace period is over.
async fn end_machine(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    handle: &MachineHandle,
    link_state: &LinkState,
) -> Result<StopHow, ToolError> {
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let grace = Duration::from_secs(workspace.shared.options.stop_grace_secs);
    let watch = driver.watch(handle);
    let detached =
        workspace.actor.ask(Duration::from_secs(10), |reply| MachineMsg::Detach(reply).into());
    let asked = match link_state {
        LinkState::Up(link) => {
            let grace_ms = u64::try_from(grace.as_millis() / 2).unwrap_or(2_000);
            link.ask(Shutdown { grace_ms }, CallTerms::at_most(Duration::from_secs(2)))
                .await
                .is_ok()
        }
        _ => false,
    };
    let ended = asked && tokio::time::timeout(grace, watch).await.is_ok();
    // Detached only now, so that closing the link does not cut off the order to shut down.
    let _actor_gone = detached.await;
    if ended {
        return Ok(StopHow::Guest);
    }
    driver.kill(handle).await?;
    Ok(StopHow::Killed)
}

/// Kills whatever machine there is of this workspace, recorded or not.
///
/// # Errors
/// When something of the machine is left.
pub(super) async fn kill_machine(
    workspace: &WorkspaceHandle,
    plan: &Planned,
) -> Result<(), ToolError> {
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let handle = workspace
        .actor
        .ask(Duration::from_secs(10), |reply| MachineMsg::Detach(reply).into())
        .await?;
    if let Some(handle) = handle {
        driver.kill(&handle).await?;
    }
    fault_point!("kill.after_kill");
    driver.release(&machine_plan(workspace, plan)?).await?;
    Ok(())
}

/// Kills the machine and removes its disk; `logs` says what becomes of its logs.
///
/// # Errors
/// When something of the machine is left.
pub(super) async fn remove_machine(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    logs: LogsOnDiscard,
) -> Result<(), ToolError> {
    kill_machine(workspace, plan).await?;
    let machine = machine_plan(workspace, plan)?;
    workspace.shared.driver(plan.spec.isolation)?.discard(&machine, logs).await?;
    Ok(())
}

/// Plan of a machine, as the driver needs it to end and remove it. A start adds the images: a
/// workspace can be removed when its image cannot be read any more.
pub(super) fn machine_plan(
    workspace: &WorkspaceHandle,
    plan: &Planned,
) -> Result<hivekeep_machine::MachinePlan, ToolError> {
    let carrier = workspace.shared.driver(plan.spec.isolation)?.facts().carrier;
    Ok(hivekeep_machine::MachinePlan {
        workspace: plan.id.to_string(),
        name: plan.name.to_string(),
        uuid: plan.uuid,
        is_fork: plan.fork.is_some(),
        slot: plan.slot,
        vcpus: plan.spec.vcpus,
        memory_mb: plan.spec.memory_mb,
        disk_gb: u32::try_from(plan.spec.disk_gb).unwrap_or(u32::MAX),
        images: hivekeep_machine::Images::default(),
        folders: folders(workspace),
        disk: None,
        token_hash_hex: plan.token.hash_hex(),
        hostname: plan.name.to_string(),
        carrier,
        cid: Some(FIRST_CID + plan.slot),
        nic: None,
        several_users: plan.several_users,
        volumes: Vec::new(),
    })
}

/// Files of a disk; `None` for the workspace's first layer alone.
pub(super) fn disk_files(
    workspace: &WorkspaceHandle,
    disk: &DiskLayers,
) -> Option<hivekeep_machine::Disk> {
    let file = |layer| Artifact::Layer(layer).path(&workspace.shared.folders);
    let top = file(disk.top?);
    Some(hivekeep_machine::Disk { layers: disk.layers.iter().copied().map(file).collect(), top })
}

/// Lowest context id of a machine; those below are left to other hypervisors of the host.
const FIRST_CID: u32 = 10_000;

/// Folders of the workspace's machine.
pub(super) fn folders(workspace: &WorkspaceHandle) -> hivekeep_machine::MachineFolders {
    let (roots, id) = (&workspace.shared.folders, workspace.id.to_string());
    hivekeep_machine::MachineFolders {
        run_dir: roots.run.join(&id),
        disk_dir: roots.disks.join(&id),
        log_dir: roots.logs.join(&id),
    }
}
