//! Launch plan: the machine that the owner wants, in plain values.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Error;
use super::folders::MachineFolders;
use super::nic::Nic;

/// Transport between the host and the guest daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// AF_VSOCK through the host's kernel.
    Vsock,
    /// A virtio-serial port; the host side is a Unix socket of QEMU.
    VirtioSerial,
    /// AF_VSOCK in the guest, a Unix socket on the host.
    VhostUserVsock,
    /// A Unix socket (sandboxes).
    Unix,
}

impl CarrierKind {
    /// Word in the guest's command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vsock => "vsock",
            Self::VirtioSerial => "virtio-serial",
            Self::VhostUserVsock => "vhost-user-vsock",
            Self::Unix => "unix",
        }
    }
}

/// Verified parts of a base image. A VM needs kernel, initrd and `rootfs_ext4`; a sandbox needs
/// `rootfs_tree`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Images {
    /// ELF kernel with a PVH note.
    pub kernel: Option<PathBuf>,
    /// Initrd with modules, and the guest daemon as `/init`.
    pub initrd: Option<PathBuf>,
    /// Read-only base of the disk overlay.
    pub rootfs_ext4: Option<PathBuf>,
    /// Same file system as a folder, for the sandbox's overlay.
    pub rootfs_tree: Option<PathBuf>,
}

/// Layers of a VM's disk: qcow2 files over the image's raw root file system.
///
/// The order of layers is given here and passed to QEMU node by node. No path in a layer's header
/// is ever followed, so layers can be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Frozen layers, oldest first. Opened read-only; several machines may use one.
    pub layers: Vec<PathBuf>,
    /// Top layer, written by this machine alone.
    pub top: PathBuf,
}

/// Plan of one machine. The owner keeps it in the workspace's record: `slot` and `uuid` must not
/// change during the workspace's life.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// Id of the workspace; also the name of its folders and its cgroup.
    pub workspace: String,
    /// Name of the workspace, for people.
    pub name: String,
    /// Uuid that proves later that a process is this machine; also the guest's machine id.
    pub uuid: Uuid,
    /// True if its disk began as another machine's, whose machine id is on it.
    pub is_fork: bool,
    /// Small number, unique among the workspaces of this host: gives the machine its user.
    pub slot: u32,
    /// Number of processors.
    pub vcpus: u32,
    /// RAM of the guest.
    pub memory_mb: u64,
    /// Size of the disk.
    pub disk_gb: u32,
    /// Images that it boots from.
    pub images: Images,
    /// Folders of the workspace.
    pub folders: MachineFolders,
    /// Layers of the disk; `None` is one layer of the workspace's own, [`MachineFolders::disk`].
    pub disk: Option<Disk>,
    /// BLAKE3 of the link token, 64 hex digits.
    pub token_hash_hex: String,
    /// Host name of the guest.
    pub hostname: String,
    /// Carrier of the link.
    pub carrier: CarrierKind,
    /// Context id of the guest, 3 or above; needed by the two vsock carriers.
    pub cid: Option<u32>,
    /// Network card; a machine without one has nothing but loopback.
    pub nic: Option<Nic>,
    /// True if a sandbox has users besides root. Its files are theirs by the ids that it began with, so
    /// this must not change either.
    pub several_users: bool,
    /// Volumes of the host that it mounts, at most [`MAX_VOLUMES`].
    pub volumes: Vec<VolumeMount>,
}

/// Number of volumes that one machine mounts.
pub const MAX_VOLUMES: usize = 16;

/// Beginning of the tags of a VM's virtio-fs devices; their numbers in [`MachinePlan::volumes`]
/// follow.
pub const VOLUME_TAG: &str = "volume";

/// Volume of the host as a folder of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    /// Folder of the host where it is mounted: the root of a file system of its own.
    pub folder: PathBuf,
    /// Absolute path in the machine, without `..`; made if it is missing.
    pub path: PathBuf,
    /// True if the machine may not write to it.
    pub read_only: bool,
    /// User and group of the host whose files are root's in the machine; `None` for root's. A folder with an
    /// owner is for sandboxes, which may give no file in them another user's or group's rights.
    pub owner: Option<(u32, u32)>,
}

impl MachinePlan {
    /// Refuses what would be unsafe to put into a command line, a path or a cgroup name.
    pub(super) fn check(&self) -> Result<(), Error> {
        let bad = |why: &str| Err(Error::BadPlan(why.into()));
        let id_ok = !self.workspace.is_empty()
            && self.workspace.len() <= 64
            && self.workspace.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !id_ok {
            return bad("the workspace id must be 1 to 64 of [A-Za-z0-9_-]");
        }
        if self.token_hash_hex.len() != 64
            || !self.token_hash_hex.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return bad("token_hash_hex must be 64 hex digits");
        }
        let host_ok = !self.hostname.is_empty()
            && self.hostname.len() <= 63
            && self.hostname.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !host_ok {
            return bad("the host name must be 1 to 63 of [A-Za-z0-9-]");
        }
        if self.vcpus == 0 || self.memory_mb < 32 || self.disk_gb == 0 {
            return bad("a machine needs a processor, 32 MB of memory and 1 GB of disk");
        }
        if let Some(Err(why)) = self.nic.as_ref().map(Nic::check) {
            return bad(&why);
        }
        if self.volumes.len() > MAX_VOLUMES {
            return bad("too many volumes");
        }
        for folder in [&self.folders.run_dir, &self.folders.disk_dir, &self.folders.log_dir] {
            if !folder.is_absolute() || folder.file_name() != Some(self.workspace.as_ref()) {
                return bad("each folder must be absolute and named after the workspace");
            }
        }
        Ok(())
    }

    /// Layers of the disk, with the default filled in.
    pub fn disk(&self) -> Disk {
        let own = || Disk { layers: Vec::new(), top: self.folders.disk() };
        self.disk.clone().unwrap_or_else(own)
    }

    /// Part of the image that this kind of machine requires.
    pub(super) fn image<'a>(
        part: &'a Option<PathBuf>,
        what: &'static str,
    ) -> Result<&'a Path, Error> {
        part.as_deref().ok_or_else(|| Error::BadPlan(format!("the image has no {what}")))
    }

    /// Tag that marks the machine's processes as this plan's: see [`super::sweep`].
    pub(super) fn tag(&self) -> String {
        format!("hivekeep:{}:{}", self.uuid, self.folders.run_dir.display())
    }
}
