//! `snapshot` with action `list`, and lookups of snapshots.

use std::{collections::BTreeSet, io::ErrorKind};

use hivekeep_kernel::{Layer, Reply, ToolError};

use crate::{
    codes,
    ledger::Ledger,
    snapshot::api::{SnapshotResult, SnapshotRow},
    snapshots::{Artifact, SnapshotNode, files},
    state::Workspace,
};

/// `snapshot` with action `list`.
pub(crate) fn snapshot_list(state: &Workspace) -> Reply<SnapshotResult> {
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
