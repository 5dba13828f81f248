//! `snapshot` with action `delete`.

use hivekeep_kernel::{Layer, Reply, SnapshotId, ToolError};
use serde_json::json;

use crate::{
    activity::Activity,
    api::snapshots::SnapshotResult,
    codes,
    handle::WorkspaceHandle,
    phase::Want,
    records::Record,
    snapshots::SnapshotNode,
    workspace::{Msg, Workspace, messages::MergeMsg},
};

/// Time for the mailbox to say whether layers can be merged.
const MERGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Merges the layers that a deleted snapshot left, or says why not. A failure does not undo the deletion.
async fn merged(workspace: &WorkspaceHandle) -> Result<(), String> {
    let begin = |reply| Msg::Merge(MergeMsg::Begin(reply));
    let begun = workspace.actor.ask(MERGE_PATIENCE, begin).await;
    let outcome = begun.map_err(|error| error.to_string())?;
    let ended = outcome.map_err(|why| why.words().to_owned())?.await;
    match ended.map_err(|_| "the workspace's actor ended".to_owned())? {
        Ok(0) => Err("it was started or changed meanwhile".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_text()),
    }
}

impl Workspace {
    /// `snapshot` with action `delete`.
    ///
    /// # Errors
    /// `snapshot_has_dependents`, with their names.
    pub(crate) fn snapshot_delete(
        &mut self,
        name: &str,
    ) -> Result<Reply<SnapshotResult>, ToolError> {
        self.on(Want::DeleteSnapshot)?;
        let node = self.snapshot_named(name)?.clone();
        let children = self.ledger.snapshots.children(node.id).map(|child| child.name.clone());
        needed_by(&node, children.chain(self.forks_of(&node)).collect())?;
        let (snapshot, name, workspace) = (node.id, node.name.clone(), self.handle.id);
        let deleted = self.delete(node);
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
    pub(in crate::workspace) fn delete_of_backup(
        &mut self,
        snapshot: SnapshotId,
    ) -> Result<Option<impl Future<Output = Result<(), ToolError>> + Send + use<>>, ToolError> {
        let node = self.ledger.snapshots.get(snapshot).filter(|node| node.by_backup);
        let Some(node) = node.cloned() else { return Ok(None) };
        self.on(Want::DeleteSnapshot)?;
        needed_by(&node, self.forks_of(&node))?;
        let deleted = self.delete(node);
        Ok(Some(async move { deleted.await.map(drop) }))
    }

    fn forks_of(&self, node: &SnapshotNode) -> Vec<String> {
        let mut forks = self.handle.shared.directory.forks_by_snapshot();
        forks.remove(&node.id).unwrap_or_default()
    }

    /// Deletes a snapshot, whether or not somebody waits; then merges what it leaves, or says why not.
    fn delete(
        &mut self,
        node: SnapshotNode,
    ) -> impl Future<Output = Result<Result<(), String>, ToolError>> + Send + use<> {
        let workspace = self.handle.clone();
        let event = json!({ "snapshot": node.name });
        self.activity = Activity::DeletingSnapshot;
        self.to_its_end(async move {
            let record = Record::SnapshotDeleted { snapshot: node.id };
            let done = workspace.commit(vec![record], Some(("snapshot.deleted", event))).await;
            let _actor_gone = workspace.actor.send(Msg::Finished(Activity::DeletingSnapshot));
            done?;
            Ok(merged(&workspace).await)
        })
    }
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
