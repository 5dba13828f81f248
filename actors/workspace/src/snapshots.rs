//! The tree of a workspace's snapshots, and the layers that its disk is made of. Pure.
//!
//! ```text
//!  image ◄── layer a ◄── layer b ◄── top          a disk: frozen layers, then one that is written
//!               ▲           ▲
//!            "clean"     "built"                  snapshots: each names the layers of its disk
//! ```
//! A snapshot freezes the top and begins a new one, so it copies nothing. A restore begins a new
//! top over the snapshot's layers, so it loses no other snapshot. [`Merge`] is a choice of two layers
//! that nothing tells apart:
//!
//! ```text
//!  image ◄── a ◄── b ◄── c ◄── top      b ended a snapshot that was deleted: whoever stands
//!            ▲           ▲              on it stands on c as well, so the two can be one
//!         "clean"     "built"
//! ```

pub(crate) mod files;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{JobId, LayerId, SnapshotId};
use hivekeep_link::LinkToken;
use hivekeep_machine::MachineHandle;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(crate) use files::{Artifact, RefCounts};

use crate::link_state::LinkState;

/// Layers of a workspace's disk, over the base of its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLayers {
    /// Frozen layers, oldest first.
    pub layers: Vec<LayerId>,
    /// The layer that is written; `None`: the workspace's first layer, in its own disk folder.
    pub top: Option<LayerId>,
}

impl DiskLayers {
    /// The top was frozen as `frozen`, and `top` is written from now on.
    pub(crate) fn freeze(&mut self, frozen: LayerId, top: LayerId) {
        self.layers.push(frozen);
        self.top = Some(top);
    }

    /// The disk's files in the folder of layers.
    pub(crate) fn artifacts(&self) -> impl Iterator<Item = Artifact> + '_ {
        self.layers.iter().chain(&self.top).map(|layer| Artifact::Layer(*layer))
    }
}

/// A snapshot of a workspace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotNode {
    /// Id of the snapshot.
    pub id: SnapshotId,
    /// Name, unique among the workspace's snapshots.
    pub name: String,
    /// The snapshot that the disk descended from when this one was made.
    pub parent: Option<SnapshotId>,
    /// Layers of the snapshot's disk, oldest first.
    pub layers: Vec<LayerId>,
    /// Memory of the machine, if it was kept.
    pub memory: Option<SnapshotMemory>,
    /// Background jobs that ran in that memory.
    pub jobs: BTreeSet<JobId>,
    /// When the snapshot was made.
    pub at: DateTime<Utc>,
    /// A backup made the snapshot, and removes it when the backup is packed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_backup: bool,
}

/// The kept memory of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotMemory {
    /// Bytes on the host's disk; 0 until the memory is complete.
    pub bytes: u64,
    /// The secret that the guest in this memory expects of its link.
    pub token: LinkToken,
}

impl SnapshotNode {
    /// Files that must be kept for as long as the snapshot exists.
    pub(crate) fn artifacts(&self) -> impl Iterator<Item = Artifact> + '_ {
        let memory = self.memory.as_ref().map(|_| Artifact::Memory(self.id));
        self.layers.iter().map(|layer| Artifact::Layer(*layer)).chain(memory)
    }
}

/// The snapshots of a workspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tree {
    /// Snapshots by id, which sorts them by age.
    nodes: BTreeMap<SnapshotId, SnapshotNode>,
    /// The snapshot that the workspace's present state descends from.
    pub at: Option<SnapshotId>,
}

impl Tree {
    /// All snapshots, oldest first.
    pub fn nodes(&self) -> impl Iterator<Item = &SnapshotNode> {
        self.nodes.values()
    }

    /// Number of snapshots.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no snapshot.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The snapshot of an id.
    pub fn get(&self, id: SnapshotId) -> Option<&SnapshotNode> {
        self.nodes.get(&id)
    }

    /// The snapshot of a name, or of an id in text form.
    pub fn find(&self, name_or_id: &str) -> Option<&SnapshotNode> {
        let named = self.nodes.values().find(|node| node.name == name_or_id);
        named.or_else(|| self.nodes.get(&name_or_id.parse().ok()?))
    }

    /// Adds a snapshot of the present state.
    pub(crate) fn add(&mut self, mut node: SnapshotNode) {
        node.parent = self.at;
        self.at = Some(node.id);
        self.nodes.insert(node.id, node);
    }

    /// Removes a snapshot; its children become those of its parent.
    pub(crate) fn remove(&mut self, id: SnapshotId) -> Option<SnapshotNode> {
        let node = self.nodes.remove(&id)?;
        for child in self.nodes.values_mut().filter(|child| child.parent == Some(id)) {
            child.parent = node.parent;
        }
        if self.at == Some(id) {
            self.at = node.parent;
        }
        Some(node)
    }

    /// Snapshots whose parent is this one.
    pub fn children(&self, id: SnapshotId) -> impl Iterator<Item = &SnapshotNode> {
        self.nodes.values().filter(move |node| node.parent == Some(id))
    }

    /// Snapshots made after this one, newest first.
    pub fn newer_than(&self, id: SnapshotId) -> Vec<SnapshotId> {
        self.nodes.keys().rev().take_while(|newer| **newer > id).copied().collect()
    }

    /// Replaces two merged layers in all snapshots.
    pub(crate) fn merged(&mut self, merge: &Merge) {
        self.nodes.values_mut().for_each(|node| merge.apply_to(&mut node.layers));
    }

    /// Files that some snapshot needs.
    pub(crate) fn artifacts(&self) -> BTreeSet<Artifact> {
        self.nodes.values().flat_map(SnapshotNode::artifacts).collect()
    }
}

/// Plan of a snapshot, decided in the mailbox.
pub struct Making {
    pub(crate) node: SnapshotNode,
    pub(crate) frozen: LayerId,
    pub(crate) top: LayerId,
    /// Path of the workspace's first layer, which has another name until it is frozen.
    pub(crate) first: Option<PathBuf>,
    /// The disk as it is now, and its base.
    pub(crate) disk: DiskLayers,
    pub(crate) base: Option<PathBuf>,
    pub(crate) machine: Option<(MachineHandle, LinkState)>,
    pub(crate) paused: bool,
}

/// A snapshot that was made.
#[derive(Debug, Clone)]
pub(crate) struct MadeSnapshot {
    pub(crate) node: SnapshotNode,
    pub(crate) pause_ms: Option<u64>,
}

/// Two neighbours of a chain, and the layer that they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// The older one.
    pub lower: LayerId,
    /// The one that stands on it.
    pub upper: LayerId,
    /// Reads as the two do.
    pub into: LayerId,
}

impl Merge {
    /// Two layers that every chain of this workspace has together or not at all, and that are
    /// `alone`: no other workspace needs them.
    pub(crate) fn find(
        disk: &DiskLayers,
        tree: &Tree,
        alone: impl Fn(LayerId) -> bool,
    ) -> Option<Self> {
        let chains = || tree.nodes().map(|node| &node.layers).chain([&disk.layers]);
        // Where a layer is, this one stands on it, in every chain.
        let inseparable = |lower: LayerId, upper: LayerId| {
            chains().all(|chain| {
                let at = chain.iter().position(|layer| *layer == lower);
                at.is_none_or(|at| chain.get(at + 1) == Some(&upper))
            })
        };
        let pairs = chains().flat_map(|chain| chain.windows(2));
        pairs
            .filter_map(
                |pair| if let [lower, upper] = pair { Some((*lower, *upper)) } else { None },
            )
            .find(|(lower, upper)| alone(*lower) && alone(*upper) && inseparable(*lower, *upper))
            .map(|(lower, upper)| Self { lower, upper, into: LayerId::new() })
    }

    /// The chain with one layer for the two.
    pub(crate) fn apply_to(&self, chain: &mut Vec<LayerId>) {
        let at = chain.windows(2).position(|pair| pair == [self.lower, self.upper]);
        if let Some(at) = at {
            chain.splice(at..at + 2, [self.into]);
        }
    }
}

/// A merge of layers that runs beside the mailbox.
pub(crate) struct Merger {
    pub(crate) wanted: CancellationToken,
    pub(crate) ended: CancellationToken,
}

impl Merger {
    /// Cancels the merge, without waiting for its end.
    pub(crate) fn cancel(&self) {
        self.wanted.cancel();
    }

    /// Cancels the merge; the future resolves once it writes no more records.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.wanted.cancel();
        self.ended.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests;
