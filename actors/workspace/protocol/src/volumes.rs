//! Volume request: mounts a file system that the host serves.

use serde::{Deserialize, Serialize};

/// Mounts the virtio-fs device of this tag at a path of a VM. Idempotent: what is mounted there
/// already stays.
///
/// The path's folders are made. No link on it is followed: what ran in the machine before left
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountVolume {
    /// Tag of the device.
    pub tag: String,
    /// Absolute path, without `..`.
    pub path: String,
    /// Refuse writes in the guest already. The host refuses them in any case.
    pub read_only: bool,
}

/// Answer to [`MountVolume`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMounted {
    /// True if it was mounted before.
    pub was_mounted: bool,
}
