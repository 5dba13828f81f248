//! `snapshot` with action `restore`.

use std::path::PathBuf;

use hivekeep_kernel::{CallCx, LayerId, Reply, ToolError, fault_point};
use serde_json::json;

use crate::{
    codes,
    handle::WorkspaceHandle,
    machine::{
        boot::{Start, StartMemory, bring_up},
        bring_up::fail_start,
        identity::has_no_volumes,
        take_down,
    },
    phase::{Phase, Want},
    records::{Planned, Record},
    snapshot::{api::SnapshotResult, snapshot_named},
    snapshots::{DiskLayers, SnapshotNode, files},
    state::Workspace,
};

/// `snapshot` with action `restore`. Goes on to the end whether or not the caller waits.
///
/// # Errors
/// When there is no such snapshot or the workspace is busy.
pub(super) fn snapshot_restore(
    state: &mut Workspace,
    cx: &CallCx,
    name: &str,
    discard_newer: bool,
) -> Result<Reply<SnapshotResult>, ToolError> {
    state.situation().undisturbed(Want::Restore)?;
    let node = snapshot_named(&state.ledger, name)?.clone();
    if node.memory.is_some() {
        has_no_volumes(
            &state.ledger.plan,
            "a machine with volumes cannot go on from memory: that was saved without them",
        )?;
    }
    let next = state.status.phase.on(Want::Restore)?;
    state.handle.shared.may_start()?;
    let newer = if discard_newer { discardable(state, &node)? } else { Vec::new() };
    let was = state.status.phase;
    state.set_phase(next);
    let (workspace, plan, cx) = (state.handle.clone(), state.ledger.plan.clone(), cx.clone());
    let base = state.ledger.base.clone();
    Ok(Reply::later(state.to_its_end(async move {
        let (top, folders) = (LayerId::new(), &workspace.shared.folders);
        let whole = files::whole(folders, &node, node.memory.is_some());
        let wanted = Record::RestoreWanted { snapshot: node.id, top };
        let begun = async {
            whole.await?;
            workspace.note(wanted).await
        };
        if let Err(error) = begun.await {
            // Nothing was touched.
            workspace.settle(was, None);
            return Err(error);
        }
        restore(&workspace, &plan, &node, (base, top), newer, &cx).await
    })))
}

/// Names of the snapshots that `discard_newer` removes.
fn discardable(state: &Workspace, node: &SnapshotNode) -> Result<Vec<String>, ToolError> {
    let tree = &state.ledger.snapshots;
    let forks = state.handle.shared.directory.forks_by_snapshot();
    let mut names = Vec::new();
    for newer in tree.newer_than(node.id) {
        let Some(newer) = tree.get(newer) else { continue };
        if let Some(forks) = forks.get(&newer.id) {
            let message = format!("snapshot `{}` is needed by {}", newer.name, forks.join(", "));
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
            workspace.settle(Phase::Running, None);
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
