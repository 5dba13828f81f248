//! `snapshot`: showing and deleting.

use std::collections::BTreeSet;

use hivekeep_kernel::{Layer, Reply, ToolError};
use serde_json::json;

use super::MAX_NAME;
use crate::{
    phase::Phase,
    records::Record,
    shared::Desk,
    snapshots::{Node, Piece, files},
    tools::snapshots::{SnapshotResult, SnapshotRow, SnapshotSummary},
    workspace::{Msg, Workspace, merge},
};

/// Time for the mailbox to say whether layers can be merged.
const MERGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Merges the layers that a deleted snapshot left; or why not. Nothing of that undoes the deletion.
async fn merged(desk: &Desk) -> Result<(), String> {
    let begin = |reply| Msg::Merge(merge::Ask::Begin(reply));
    let begun = desk.actor.ask(MERGE_PATIENCE, begin).await;
    let outcome = begun.map_err(|error| error.to_string())?;
    let ended = outcome.map_err(|why| why.words().to_owned())?.await;
    match ended.map_err(|_| "the workspace's actor ended".to_owned())? {
        Ok(0) => Err("it was started or changed meanwhile".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_text()),
    }
}

impl Workspace {
    /// `snapshot` with action `list`.
    pub(crate) fn snapshot_list(&self) -> Reply<SnapshotResult> {
        let (tree, disk) = (self.ledger.snapshots.clone(), self.ledger.disk.clone());
        let (folders, holds) = (self.desk.shared.folders.clone(), self.desk.shared.holds.clone());
        let forks = self.desk.shared.directory.forks_by_snapshot();
        let workspace = self.desk.id;
        Reply::later(async move {
            let measure = move || {
                let row = |node: &Node| {
                    let pieces: Vec<_> = node.pieces().collect();
                    let others = tree.nodes().filter(|other| other.id != node.id);
                    let others: BTreeSet<_> =
                        others.flat_map(Node::pieces).chain(disk.pieces()).collect();
                    let (own, shared): (Vec<Piece>, Vec<Piece>) = pieces
                        .into_iter()
                        .partition(|piece| holds.count(*piece) <= 1 && !others.contains(piece));
                    let bytes = |pieces: Vec<Piece>| {
                        let bytes = pieces.iter().map(|piece| files::bytes(&piece.path(&folders)));
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
                    ToolError::new(Layer::Machine, "machine_host_io", format!("layers: {error}"))
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

    /// `snapshot` with action `delete`.
    ///
    /// # Errors
    /// `snapshot_has_dependents`, with their names.
    pub(crate) fn snapshot_delete(
        &mut self,
        name: &str,
    ) -> Result<Reply<SnapshotResult>, ToolError> {
        self.unchanging()?;
        if let Phase::Starting | Phase::Destroying = self.phase() {
            // It may be on its way back to just this one.
            return Err(self.phase().busy());
        }
        let node = self.snapshot_named(name)?.clone();
        let children = self.ledger.snapshots.children(node.id).map(|child| child.name.clone());
        let mut forks = self.desk.shared.directory.forks_by_snapshot();
        let forks = forks.remove(&node.id).unwrap_or_default();
        let dependents: Vec<_> = children.chain(forks).collect();
        if !dependents.is_empty() {
            let message =
                format!("snapshot `{}` is needed by {}", node.name, dependents.join(", "));
            return Err(ToolError::new(Layer::Actor, "snapshot_has_dependents", message)
                .next("delete those snapshots and destroy those forks first")
                .detail("dependents", dependents));
        }
        let (desk, workspace) = (self.desk.clone(), self.desk.id);
        let (snapshot, ops) = (node.id, self.ops.clone());
        let event = json!({ "snapshot": node.name });
        self.changing = Some("losing a snapshot");
        Ok(Reply::later(async move {
            let (tell, told) = tokio::sync::oneshot::channel();
            let _detached = ops.spawn(async move {
                let record = Record::SnapshotDeleted { snapshot };
                let done = desk.commit(vec![record], Some(("snapshot.deleted", event))).await;
                let _actor_gone = desk.actor.send(Msg::Unchanged);
                let merged = match &done {
                    Ok(()) => Some(merged(&desk).await),
                    Err(_) => None,
                };
                let _caller_gone = tell.send(done.map(|()| merged));
            });
            let told =
                told.await.map_err(|_| ToolError::internal("the deletion's work ended"))??;
            let not_merged = told.and_then(Result::err);
            Ok(SnapshotResult {
                merged: Some(not_merged.is_none()),
                not_merged,
                snapshot_id: Some(node.id),
                name: Some(node.name),
                workspace_id: Some(workspace),
                deleted: Some(true),
                ..Default::default()
            })
        }))
    }

    /// For `workspace_info`.
    pub(crate) fn snapshot_summaries(&self) -> Vec<SnapshotSummary> {
        self.ledger.snapshots.nodes().map(SnapshotSummary::of).collect()
    }

    /// A snapshot by name or id.
    ///
    /// # Errors
    /// `snapshot_not_found`, with the names there are.
    pub(crate) fn snapshot_named(&self, name: &str) -> Result<&Node, ToolError> {
        self.ledger.snapshots.find(name).ok_or_else(|| {
            let shown: String = name.chars().take(MAX_NAME).collect();
            let names: Vec<_> =
                self.ledger.snapshots.nodes().map(|node| node.name.clone()).collect();
            ToolError::new(Layer::Actor, "snapshot_not_found", format!("no snapshot `{shown}`"))
                .next("snapshot with action `list` shows the snapshots there are")
                .detail("snapshots", names)
        })
    }
}
