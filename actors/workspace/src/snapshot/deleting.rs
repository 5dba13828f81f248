//! `snapshot` with action `delete`.

use hivekeep_kernel::{Layer, Reply, SnapshotId, ToolError};
use serde_json::json;

use crate::{
    activity::Activity,
    codes,
    handle::WorkspaceHandle,
    messages::{MergeMsg, WorkMsg},
    phase::Want,
    records::Record,
    snapshot::{api::SnapshotResult, listing::snapshot_named},
    snapshots::SnapshotNode,
    state::Workspace,
};

/// Time for the mailbox to say whether layers can be merged.
const MERGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

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
pub(crate) fn snapshot_delete(
    state: &mut Workspace,
    name: &str,
) -> Result<Reply<SnapshotResult>, ToolError> {
    state.on(Want::DeleteSnapshot)?;
    let node = snapshot_named(&state.ledger, name)?.clone();
    let children = state.ledger.snapshots.children(node.id).map(|child| child.name.clone());
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
