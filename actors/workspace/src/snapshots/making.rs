//! A snapshot that is to be made, and one that was.

use std::path::PathBuf;

use hivekeep_kernel::LayerId;
use hivekeep_machine::MachineHandle;

use super::{DiskLayers, SnapshotNode};
use crate::link_state::LinkState;

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
