//! The end of changes of the disk that failed or that a crash cut short.

use std::path::{Path, PathBuf};

use hivekeep_kernel::ToolError;
use hivekeep_machine::MachineHandle;

use crate::{
    handle::WorkspaceHandle,
    ledger::DiskChange,
    machine::{boot::memory_folder, take_down},
    phase::no_snapshots,
    records::{Planned, Record},
    snapshots::{Artifact, DiskLayers, files},
};

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
