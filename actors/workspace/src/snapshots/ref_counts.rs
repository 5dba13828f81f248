//! Reference counts of the files that disks and snapshots are made of.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use dashmap::DashMap;
use hivekeep_kernel::{LayerId, SnapshotId, WorkspaceId};

use crate::folders::WorkspaceFolders;

/// A file or folder that several workspaces may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Artifact {
    /// A layer of a disk.
    Layer(LayerId),
    /// The memory of a snapshot.
    Memory(SnapshotId),
}

impl Artifact {
    /// Path of the artifact.
    pub(crate) fn path(self, folders: &WorkspaceFolders) -> PathBuf {
        match self {
            Self::Layer(layer) => folders.layers.join(format!("{layer}.qcow2")),
            Self::Memory(snapshot) => folders.memories.join(snapshot.to_string()),
        }
    }
}

/// Counts who needs which artifact. Kept in memory only: each start rebuilds the counts from the
/// workspaces' records.
///
/// An artifact is taken for a new workspace while the one that it comes from still holds it, so a count
/// that fell to zero never rises again.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefCounts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: DashMap<Artifact, usize>,
    /// Artifacts that are counted for each workspace.
    held: DashMap<WorkspaceId, BTreeSet<Artifact>>,
}

impl RefCounts {
    /// Replaces the artifacts of a workspace; returns those of its former ones that nobody needs any more.
    pub(crate) fn replace(&self, id: WorkspaceId, artifacts: BTreeSet<Artifact>) -> Vec<Artifact> {
        let mut held = self.0.held.entry(id).or_default();
        self.take(artifacts.difference(&held).copied());
        let free = self.release(held.difference(&artifacts).copied());
        *held = artifacts;
        drop(held);
        self.0.held.remove_if(&id, |_, held| held.is_empty());
        free
    }

    /// Adds one to the count of each artifact.
    pub(crate) fn take(&self, artifacts: impl IntoIterator<Item = Artifact>) {
        for artifact in artifacts {
            *self.0.counts.entry(artifact).or_default() += 1;
        }
    }

    /// Adds one to an artifact's count if anybody needs it; returns whether that is so.
    pub(crate) fn take_held(&self, artifact: Artifact) -> bool {
        self.0.counts.get_mut(&artifact).map(|mut count| *count += 1).is_some()
    }

    /// Takes one from the count of each artifact; returns those that nobody needs any more.
    #[must_use]
    pub(crate) fn release(&self, artifacts: impl IntoIterator<Item = Artifact>) -> Vec<Artifact> {
        let gone = |artifact: &Artifact| {
            if let Some(mut count) = self.0.counts.get_mut(artifact) {
                *count = count.saturating_sub(1);
            }
            self.0.counts.remove_if(artifact, |_, count| *count == 0).is_some()
        };
        artifacts.into_iter().filter(gone).collect()
    }

    /// Whether anybody needs the artifact.
    pub(crate) fn held(&self, artifact: Artifact) -> bool {
        self.0.counts.contains_key(&artifact)
    }

    /// Number of those who need the artifact.
    pub(crate) fn count(&self, artifact: Artifact) -> usize {
        self.0.counts.get(&artifact).map_or(0, |count| *count)
    }
}
