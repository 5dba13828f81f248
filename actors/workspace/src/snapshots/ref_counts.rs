//! Which files of snapshots somebody needs.

use std::{path::PathBuf, sync::Arc};

use dashmap::DashMap;
use hivekeep_kernel::{LayerId, SnapshotId};

use crate::shared::Folders;

/// A file or folder that several workspaces may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Artifact {
    /// A layer of a disk.
    Layer(LayerId),
    /// The memory of a snapshot.
    Memory(SnapshotId),
}

impl Artifact {
    /// Where it is.
    pub(crate) fn path(self, folders: &Folders) -> PathBuf {
        match self {
            Self::Layer(layer) => folders.layers.join(format!("{layer}.qcow2")),
            Self::Memory(snapshot) => folders.memories.join(snapshot.to_string()),
        }
    }
}

/// Counts who needs what. Only kept in memory: the workspaces' records say it again at each start.
///
/// A piece is taken for a new workspace while the one that it comes from still holds it, so a count
/// that fell to zero never rises again.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefCounts(Arc<DashMap<Artifact, usize>>);

impl RefCounts {
    /// One more needs them.
    pub(crate) fn take(&self, pieces: impl IntoIterator<Item = Artifact>) {
        for piece in pieces {
            *self.0.entry(piece).or_default() += 1;
        }
    }

    /// One less needs them; returns those that nobody needs any more.
    #[must_use]
    pub(crate) fn release(&self, pieces: impl IntoIterator<Item = Artifact>) -> Vec<Artifact> {
        let gone = |piece: &Artifact| {
            if let Some(mut count) = self.0.get_mut(piece) {
                *count = count.saturating_sub(1);
            }
            self.0.remove_if(piece, |_, count| *count == 0).is_some()
        };
        pieces.into_iter().filter(gone).collect()
    }

    /// Begins anew, as when all records are read again.
    pub(crate) fn forget(&self) {
        self.0.clear();
    }

    /// Whether anybody needs it.
    pub(crate) fn held(&self, piece: Artifact) -> bool {
        self.0.contains_key(&piece)
    }

    /// How many workspaces need it.
    pub(crate) fn count(&self, piece: Artifact) -> usize {
        self.0.get(&piece).map_or(0, |count| *count)
    }
}
