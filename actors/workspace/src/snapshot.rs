//! Tools of snapshots: a workspace's are listed and deleted, new ones made, and forks made of them.

pub(crate) mod api;
pub(crate) mod create;
pub(crate) mod fork;
pub(crate) mod merge;
pub(crate) mod requests;
pub(crate) mod restore;

use std::{collections::BTreeSet, io::ErrorKind};

use hivekeep_kernel::{CallCx, Layer, Reply, SnapshotId, ToolError, tools};
use serde_json::json;

use self::api::{
    Forked, Snapshot, SnapshotAction, SnapshotResult, SnapshotRow, WorkspaceBranch, WorkspaceFork,
};
use crate::{
    activity::Activity,
    codes,
    handle::WorkspaceHandle,
    ledger::Ledger,
    manager::Workspaces,
    messages::{MergeMsg, WorkMsg},
    phase::Want,
    records::Record,
    snapshots::{Artifact, SnapshotNode, files},
    state::Workspace,
};

/// Time for the mailbox to say whether layers can be merged.
const MERGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

tools! { pub ONE: "snapshots & forking" for Workspace, addressed workspace by workspace_id;
    snapshot: Snapshot => SnapshotResult = on_snapshot {
        title: "Snapshots of a workspace", effect: Destroy, risk: Risk::Medium, timeout_secs: 600,
    };
}

tools! { pub FORKS: "snapshots & forking" for Workspaces, singleton workspaces;
    workspace_fork: WorkspaceFork => Forked = fork::on_fork {
        title: "Fork a workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 600,
        told_by: Some("workspace_list"),
    };
    workspace_branch: WorkspaceBranch => Forked = fork::on_branch {
        title: "Branch a running workspace", rate: RateClass::Create, risk: Risk::Medium, timeout_secs: 600,
        told_by: Some("workspace_list"),
    };
}

fn on_snapshot(
    state: &mut Workspace,
    cx: &CallCx,
    input: Snapshot,
) -> Result<Reply<SnapshotResult>, ToolError> {
    match input.action {
        SnapshotAction::Create { name, include_memory } => {
            create::snapshot_create(state, cx, name, include_memory.unwrap_or(false))
        }
        SnapshotAction::Restore { name, discard_newer } => {
            restore::snapshot_restore(state, cx, &name, discard_newer.unwrap_or(false))
        }
        SnapshotAction::List => Ok(snapshot_list(state)),
        SnapshotAction::Delete { name, keep_newer } => {
            snapshot_delete(state, &name, keep_newer.unwrap_or(false))
        }
    }
}

/// `snapshot` with action `list`.
fn snapshot_list(state: &Workspace) -> Reply<SnapshotResult> {
    let (tree, disk) = (state.ledger.snapshots.clone(), state.ledger.disk.clone());
    let (folders, holds) =
        (state.handle.shared.folders.clone(), state.handle.shared.ref_counts.clone());
    let forks = state.handle.shared.directory.forks_by_snapshot();
    let workspace = state.handle.id;
    Reply::later(async move {
        let measure = move || {
            let row = |node: &SnapshotNode| {
                let artifacts: Vec<_> = node.artifacts().collect();
                let others = tree.nodes().filter(|other| other.id != node.id);
                let others: BTreeSet<_> =
                    others.flat_map(SnapshotNode::artifacts).chain(disk.artifacts()).collect();
                let (own, shared): (Vec<Artifact>, Vec<Artifact>) =
                    artifacts.into_iter().partition(|artifact| {
                        holds.count(*artifact) <= 1 && !others.contains(artifact)
                    });
                let bytes = |artifacts: Vec<Artifact>| {
                    let bytes = artifacts.iter().map(|artifact| {
                        match files::bytes(&artifact.path(&folders)) {
                            // Memory that a backup did not contain.
                            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
                            bytes => bytes,
                        }
                    });
                    bytes.sum::<std::io::Result<u64>>()
                };
                let children = tree.children(node.id).map(|child| child.name.clone());
                let forks = forks.get(&node.id).cloned().unwrap_or_default();
                Ok(SnapshotRow {
                    id: node.id,
                    name: node.name.clone(),
                    has_memory: node.memory.is_some(),
                    parent: node.parent,
                    created_at: node.at,
                    current: tree.at == Some(node.id),
                    own_bytes: bytes(own)?,
                    shared_bytes: bytes(shared)?,
                    dependents: children.chain(forks).collect(),
                })
            };
            tree.nodes().map(row).collect::<std::io::Result<Vec<_>>>()
        };
        let rows = tokio::task::spawn_blocking(measure)
            .await
            .map_err(|error| ToolError::internal(error.to_string()))?
            .map_err(|error| {
                ToolError::new(Layer::Machine, codes::MACHINE_HOST_IO, format!("layers: {error}"))
                    .next("`hivekeep check` looks at the folders")
            })?;
        Ok(SnapshotResult {
            workspace_id: Some(workspace),
            count: Some(rows.len()),
            snapshots: Some(rows),
            ..Default::default()
        })
    })
}

/// A snapshot by name or id.
///
/// # Errors
/// `snapshot_not_found`, with the names there are.
pub(crate) fn snapshot_named<'l>(
    ledger: &'l Ledger,
    name: &str,
) -> Result<&'l SnapshotNode, ToolError> {
    ledger.snapshots.find(name).ok_or_else(|| {
        let names: Vec<_> = ledger.snapshots.nodes().map(|node| node.name.clone()).collect();
        ToolError::not_found(Layer::Actor, codes::SNAPSHOT_NOT_FOUND, "snapshot", name)
            .next("snapshot with action `list` shows the snapshots there are")
            .detail("snapshots", names)
    })
}

/// Merges the layers that a deleted snapshot left, or says why not. A failure does not undo the deletion.
async fn merged(workspace: &WorkspaceHandle) -> Result<(), String> {
    let begin = |reply| MergeMsg::Begin(reply).into();
    let begun = workspace.actor.ask(MERGE_PATIENCE, begin).await;
    let outcome = begun.map_err(|error| error.to_string())?;
    let ended = outcome.map_err(|why| why.words().to_owned())?.await;
    match ended.map_err(|_| "the workspace's actor ended".to_owned())? {
        Ok(0) => Err("it was started or changed meanwhile".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_text()),
    }
}

/// `snapshot` with action `delete`.
///
/// # Errors
/// `snapshot_has_dependents`, with their names.
fn snapshot_delete(
    state: &mut Workspace,
    name: &str,
    keep_newer: bool,
) -> Result<Reply<SnapshotResult>, ToolError> {
    state.on(Want::DeleteSnapshot)?;
    let node = snapshot_named(&state.ledger, name)?.clone();
    let children = state.ledger.snapshots.children(node.id).filter(|_| !keep_newer);
    let children = children.map(|child| child.name.clone());
    needed_by(&node, children.chain(forks_of(&state.handle, &node)).collect())?;
    let (snapshot, name, workspace) = (node.id, node.name.clone(), state.handle.id);
    let deleted = delete(state, node);
    Ok(Reply::later(async move {
        let not_merged = deleted.await?.err();
        Ok(SnapshotResult {
            merged: Some(not_merged.is_none()),
            not_merged,
            snapshot_id: Some(snapshot),
            name: Some(name),
            workspace_id: Some(workspace),
            deleted: Some(true),
            ..Default::default()
        })
    }))
}

/// Deletes a snapshot that a backup made, if it is there. Snapshots that were made after it
/// become its parent's.
///
/// # Errors
/// When the snapshot has forks, or the workspace is busy.
pub(crate) fn delete_of_backup(
    state: &mut Workspace,
    snapshot: SnapshotId,
) -> Result<Option<impl Future<Output = Result<(), ToolError>> + Send + use<>>, ToolError> {
    let node = state.ledger.snapshots.get(snapshot).filter(|node| node.by_backup);
    let Some(node) = node.cloned() else { return Ok(None) };
    state.on(Want::DeleteSnapshot)?;
    needed_by(&node, forks_of(&state.handle, &node))?;
    let deleted = delete(state, node);
    Ok(Some(async move { deleted.await.map(drop) }))
}

fn forks_of(workspace: &WorkspaceHandle, node: &SnapshotNode) -> Vec<String> {
    let mut forks = workspace.shared.directory.forks_by_snapshot();
    forks.remove(&node.id).unwrap_or_default()
}

/// Deletes a snapshot, whether or not somebody waits; then merges what it leaves, or says why not.
fn delete(
    state: &mut Workspace,
    node: SnapshotNode,
) -> impl Future<Output = Result<Result<(), String>, ToolError>> + Send + use<> {
    let workspace = state.handle.clone();
    let event = json!({ "snapshot": node.name });
    state.status.activity = Activity::DeletingSnapshot;
    state.to_its_end(async move {
        let record = Record::SnapshotDeleted { snapshot: node.id };
        let done = workspace.commit(vec![record], Some(("snapshot.deleted", event))).await;
        let _actor_gone =
            workspace.actor.send(WorkMsg::Finished(Activity::DeletingSnapshot).into());
        done?;
        Ok(merged(&workspace).await)
    })
}

fn needed_by(node: &SnapshotNode, dependents: Vec<String>) -> Result<(), ToolError> {
    if dependents.is_empty() {
        return Ok(());
    }
    let message = format!("snapshot `{}` is needed by {}", node.name, dependents.join(", "));
    Err(ToolError::new(Layer::Actor, codes::SNAPSHOT_HAS_DEPENDENTS, message)
        .next("delete those snapshots and destroy those forks first")
        .detail("dependents", dependents))
}
