//! `snapshot` with action `restore`, and the end of disk changes that a crash cut short.

use std::path::{Path, PathBuf};

use hivekeep_kernel::{CallCx, LayerId, Reply, ToolError, fault_point};
use hivekeep_machine::MachineHandle;
use serde_json::json;

use super::{
    Workspace,
    boot::{Start, StartMemory, bring_up, memory_folder},
    bring_up::{fail_start, settle},
    take_down,
};
use crate::{
    api::snapshots::SnapshotResult,
    codes,
    handle::WorkspaceHandle,
    ledger::DiskChange,
    phase::{Phase, Want, no_snapshots},
    records::{Planned, Record},
    snapshots::{Artifact, DiskLayers, SnapshotNode, files},
};

impl Workspace {
    /// `snapshot` with action `restore`. Goes on to the end whether or not the caller waits.
    ///
    /// # Errors
    /// When there is no such snapshot or the workspace is busy.
    pub(crate) fn snapshot_restore(
        &mut self,
        cx: &CallCx,
        name: &str,
        discard_newer: bool,
    ) -> Result<Reply<SnapshotResult>, ToolError> {
        self.situation().undisturbed(Want::Restore)?;
        let node = self.snapshot_named(name)?.clone();
        if node.memory.is_some() {
            self.has_no_volumes(
                "a machine with volumes cannot go on from memory: that was saved without them",
            )?;
        }
        let next = self.phase.on(Want::Restore)?;
        self.may_start()?;
        let newer = if discard_newer { self.discardable(&node)? } else { Vec::new() };
        let was = self.phase;
        self.set_phase(next);
        let (workspace, plan, cx) = (self.handle.clone(), self.ledger.plan.clone(), cx.clone());
        let base = self.ledger.base.clone();
        Ok(Reply::later(self.to_its_end(async move {
            let (top, folders) = (LayerId::new(), &workspace.shared.folders);
            let whole = files::whole(folders, &node, node.memory.is_some());
            let wanted = Record::RestoreWanted { snapshot: node.id, top };
            let begun = async {
                whole.await?;
                workspace.note(wanted).await
            };
            if let Err(error) = begun.await {
                // Nothing was touched.
                settle(&workspace, was, None).await;
                return Err(error);
            }
            restore(&workspace, &plan, &node, (base, top), newer, &cx).await
        })))
    }

    /// Names of the snapshots that `discard_newer` removes.
    fn discardable(&self, node: &SnapshotNode) -> Result<Vec<String>, ToolError> {
        let tree = &self.ledger.snapshots;
        let forks = self.handle.shared.directory.forks_by_snapshot();
        let mut names = Vec::new();
        for newer in tree.newer_than(node.id) {
            let Some(newer) = tree.get(newer) else { continue };
            if let Some(forks) = forks.get(&newer.id) {
                let message =
                    format!("snapshot `{}` is needed by {}", newer.name, forks.join(", "));
                return Err(ToolError::new(
                    hivekeep_kernel::Layer::Actor,
                    codes::SNAPSHOT_HAS_DEPENDENTS,
                    message,
                )
                .next("leave discard_newer out, or destroy those forks first")
                .detail("dependents", forks.clone()));
            }
            names.push(newer.name.clone());
        }
        Ok(names)
    }
}

async fn restore(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    node: &SnapshotNode,
    (base, top): (Option<PathBuf>, LayerId),
    discarded: Vec<String>,
    cx: &CallCx,
) -> Result<SnapshotResult, ToolError> {
    if let Err(error) = leave(workspace, plan, node, !discarded.is_empty()).await {
        fail_start(workspace, plan, &error).await;
        return Err(error);
    }
    let memory =
        node.memory.as_ref().map(|memory| StartMemory::Copy(node.id, memory.token.clone()));
    let with_memory = memory.is_some();
    let disk = DiskLayers { layers: node.layers.clone(), top: Some(top) };
    let start = Start { base, disk, memory, planned: false };
    let up = bring_up(workspace, plan, start, cx).await;
    let recorded = async {
        let up = up?;
        workspace.note(up.record()).await?;
        Ok(up.boot_time_ms)
    };
    match recorded.await {
        Ok(boot_time_ms) => {
            settle(workspace, Phase::Running, None).await;
            Ok(SnapshotResult {
                snapshot_id: Some(node.id),
                name: Some(node.name.clone()),
                workspace_id: Some(workspace.id),
                has_memory: Some(with_memory),
                state: Some(Phase::Running),
                boot_time_ms: Some(boot_time_ms),
                discarded: Some(discarded),
                ..Default::default()
            })
        }
        Err(error) => {
            fail_start(workspace, plan, &error).await;
            Err(error)
        }
    }
}

/// Ends the machine and records the snapshot's disk as the workspace's. The record [`Record::Restored`] is
/// the point of no return: before it, the present state's disk is untouched.
async fn leave(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    node: &SnapshotNode,
    discard_newer: bool,
) -> Result<(), ToolError> {
    fault_point!("restore.after_intent");
    if let Err(error) = take_down::kill_machine(workspace, plan).await {
        workspace.note(Record::RestoreFailed).await?;
        return Err(error);
    }
    fault_point!("restore.after_kill");
    let record = Record::Restored { with_memory: node.memory.is_some(), discard_newer };
    let event = ("snapshot.restored", json!({ "snapshot": node.name }));
    workspace.commit(vec![record], Some(event)).await?;
    fault_point!("restore.after_restored");
    Ok(())
}

/// Ends a change that was cut short, before anything else is done with the workspace. `disk` is the
/// recorded one, `machine` the recorded one if it still runs.
pub(super) async fn settle_change(
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
pub(super) async fn settle_failed(
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
