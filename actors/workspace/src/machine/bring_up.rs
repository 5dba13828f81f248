//! Starts of a machine that has run before, the end of changes of its disk that were cut short, and what
//! is left of starts that fail.

use std::path::{Path, PathBuf};

use hivekeep_kernel::{CallCx, ToolError};
use hivekeep_machine::{LogsOnDiscard, MachineHandle};
use serde_json::json;

use crate::{
    handle::WorkspaceHandle,
    ledger::DiskChange,
    machine::{
        boot::{Start, bring_up, memory_folder},
        take_down,
    },
    network::lease,
    phase::{Phase, no_snapshots},
    records::{Planned, Record},
    snapshots::{Artifact, DiskLayers, files},
};

/// Checks that a disk's files exist: a lost disk must not be begun anew unnoticed, as after a
/// restore of the journal alone. The top may be missing: a start begins it.
async fn disk_is_there(workspace: &WorkspaceHandle, disk: &DiskLayers) -> Result<(), ToolError> {
    let frozen =
        disk.layers.iter().map(|layer| Artifact::Layer(*layer).path(&workspace.shared.folders));
    let own = std::iter::once(take_down::folders(workspace).disk_dir);
    files::there(own.chain(frozen).collect()).await
}

/// Starts the machine again, after its first start; the answer is the boot time in ms.
pub(crate) async fn bring_up_again(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    mut start: Start,
    change: Option<DiskChange>,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    disk_is_there(workspace, &start.disk).await?;
    // A recovery or a stop that failed may have left the recorded machine alive;
    // two machines must never write one disk.
    take_down::kill_machine(workspace, plan).await?;
    if let Some(change) = change {
        settle_change(workspace, plan, &change, &start.disk, None).await?;
        change.apply_to(&mut start.disk);
    }
    let up = bring_up(workspace, plan, start, cx).await?;
    workspace.note(up.record()).await?;
    Ok(up.boot_time_ms)
}

/// Undoes a creation that failed, and keeps its logs.
pub(crate) async fn fail_creation(workspace: &WorkspaceHandle, plan: &Planned, error: &ToolError) {
    if let Err(left) = take_down::remove_machine(workspace, plan, LogsOnDiscard::Keep).await {
        // Not recorded as failed: the next start of the daemon undoes the creation again.
        tracing::error!(workspace = %workspace.id, %left, "a failed creation could not be undone");
        return workspace.settle(Phase::Crashed, Some(left.to_text()));
    }
    lease::leave(workspace).await;
    workspace.shared.volumes.set(workspace.id, &[]);
    let record =
        Record::CreateFailed { code: error.code.to_string(), message: error.message.clone() };
    let kind = if plan.pool.is_none() { "workspace.create_failed" } else { "pool.failed" };
    let event = (kind, json!({ "name": plan.name, "error": error.code }));
    if let Err(error) = workspace.commit(vec![record], Some(event)).await {
        tracing::error!(workspace = %workspace.id, %error, "a failed creation could not be recorded");
    }
    if let Some(owner) = plan.holder() {
        workspace.shared.daemon.sessions.release(owner, plan.spec.resources());
    }
    workspace.shared.directory.release(plan);
    workspace.settle(Phase::Failed, Some(error.to_text()));
}

pub(crate) async fn fail_start(workspace: &WorkspaceHandle, plan: &Planned, error: &ToolError) {
    let reason = error.to_text();
    if let Err(left) = take_down::kill_machine(workspace, plan).await {
        tracing::error!(workspace = %workspace.id, %left, "a failed start could not be undone");
        // Not recorded as crashed: a later start finds the machine by its record.
        workspace
            .publish("workspace.start_failed", json!({ "name": plan.name, "error": error.code }));
        let reason = format!("{reason}; and it could not be undone: {left}");
        return workspace.settle(Phase::Crashed, Some(reason));
    }
    let record = Record::Crashed { at: chrono::Utc::now(), reason: reason.clone() };
    let event = ("workspace.start_failed", json!({ "name": plan.name, "error": error.code }));
    if let Err(error) = workspace.commit(vec![record], Some(event)).await {
        tracing::error!(workspace = %workspace.id, %error, "a failed start could not be recorded");
    }
    workspace.settle(Phase::Crashed, Some(reason));
}

/// Ends a change that was cut short, before anything else is done with the workspace. `disk` is the
/// recorded one, `machine` the recorded one if it still runs.
pub(crate) async fn settle_change(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    change: &DiskChange,
    disk: &DiskLayers,
    machine: Option<&MachineHandle>,
) -> Result<(), ToolError> {
    match change {
        DiskChange::Restore { .. } => workspace.note(Record::RestoreFailed).await,
        DiskChange::Snapshot { node, frozen, top, paused, first } => {
            let layer = |layer| Artifact::Layer(layer).path(&workspace.shared.folders);
            if *first {
                files::link(take_down::folders(workspace).disk(), layer(*frozen)).await?;
            }
            let driver = workspace.shared.driver(plan.spec.isolation)?;
            let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
            files::begin(layer(*frozen), plan.spec.disk_gb).await?;
            if let Some(machine) = machine {
                put_top_on(workspace, plan, disk, &layer(*top), *paused, machine).await?;
            }
            if node.memory.is_some() {
                snapshots.discard_snapshot(&memory_folder(workspace, node.id)).await?;
            }
            // Without a machine a top that was never begun is empty: the next start begins it.
            workspace.note(Record::SnapshotFailed { switched: true }).await
        }
    }
}

/// Rolls a snapshot's change of the disk forward in a machine that runs, and lets it go on.
async fn put_top_on(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    disk: &DiskLayers,
    new_top: &Path,
    paused: bool,
    machine: &MachineHandle,
) -> Result<(), ToolError> {
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
    let mut own = take_down::machine_plan(workspace, plan)?;
    own.disk = take_down::disk_files(workspace, disk);
    snapshots.switch_disk(machine, &own, new_top).await?;
    if !paused {
        snapshots.resume(machine).await?;
    }
    Ok(())
}

/// Records which layer is written, after a snapshot that failed while the workspace went on. If
/// that cannot be found out, the change stays open until the machine is stopped.
pub(crate) async fn settle_failed(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    disk: &DiskLayers,
    new_top: PathBuf,
    paused: bool,
    machine: Option<&MachineHandle>,
) -> Result<(), ToolError> {
    if let Some(machine) = machine {
        put_top_on(workspace, plan, disk, &new_top, paused, machine).await?;
    }
    workspace.note(Record::SnapshotFailed { switched: machine.is_some() }).await
}
