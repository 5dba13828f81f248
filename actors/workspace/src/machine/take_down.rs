//! Ending a machine, by shutdown or by force, and the plan by which it is ended.

use std::time::Duration;

use hivekeep_kernel::{ToolError, fault_point};
use hivekeep_link::CallTerms;
use hivekeep_machine::{LogsOnDiscard, MachineHandle};
use hivekeep_protocol::Shutdown;
use serde_json::json;

use crate::{
    handle::WorkspaceHandle,
    link_state::LinkState,
    messages::MachineMsg,
    phase::Phase,
    records::{Planned, Record, StopHow},
    snapshots::{Artifact, DiskLayers},
};

/// Stops the machine and records it.
pub(crate) async fn stop(
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
pub(crate) async fn kill_machine(
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
pub(crate) async fn remove_machine(
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
pub(crate) fn machine_plan(
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
pub(crate) fn disk_files(
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
pub(crate) fn folders(workspace: &WorkspaceHandle) -> hivekeep_machine::MachineFolders {
    let (roots, id) = (&workspace.shared.folders, workspace.id.to_string());
    hivekeep_machine::MachineFolders {
        run_dir: roots.run.join(&id),
        disk_dir: roots.disks.join(&id),
        log_dir: roots.logs.join(&id),
    }
}
