//! A snapshot that is to be made, and one that was.

use std::path::PathBuf;

use hivekeep_kernel::LayerId;
use hivekeep_machine::MachineHandle;

use crate::{
    snapshots::{DiskLayers, SnapshotNode},
    workspace::LinkState,
};

/// Plan of a snapshot, decided in the mailbox.
pub struct Making {
    pub(crate) node: SnapshotNode,
    pub(super) frozen: LayerId,
    pub(super) top: LayerId,
    /// Path of the workspace's first layer, which has another name until it is frozen.
    pub(super) first: Option<PathBuf>,
    /// The disk as it is now, and its base.
    pub(super) disk: DiskLayers,
    pub(super) base: Option<PathBuf>,
    pub(super) machine: Option<(MachineHandle, LinkState)>,
    pub(super) paused: bool,
}

/// A snapshot that was made.
#[derive(Debug, Clone)]
pub(crate) struct MadeSnapshot {
    pub(crate) node: SnapshotNode,
    pub(crate) pause_ms: Option<u64>,
}
