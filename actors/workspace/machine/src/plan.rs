//! What the owner wants started, in plain values.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Error;
use super::folders::Folders;
use super::nic::Nic;

/// How bytes travel between the host and the guest daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// AF_VSOCK through the host's kernel.
    Vsock,
    /// A virtio-serial port; the host side is a Unix socket of QEMU.
    VirtioSerial,
    /// AF_VSOCK in the guest, a Unix socket on the host.
    VhostUserVsock,
    /// A Unix socket (sandboxes).
    Unix,
}

impl Carrier {
    /// The word the guest's command line uses.
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
    /// An ELF kernel with a PVH note.
    pub kernel: Option<PathBuf>,
    /// Modules and the guest daemon as `/init`.
    pub initrd: Option<PathBuf>,
    /// The read-only base of the disk overlay.
    pub rootfs_ext4: Option<PathBuf>,
    /// The same files as a folder, for the sandbox's overlay.
    pub rootfs_tree: Option<PathBuf>,
}

/// What a VM's disk is made of: qcow2 layers over the image's raw root file system.
///
/// Which layer stands on which is said here and told to QEMU node by node. No path that a layer's
/// header may hold is ever followed, so layers can be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Frozen, oldest first. Opened read-only; several machines may stand on one.
    pub layers: Vec<PathBuf>,
    /// Written by this machine alone.
    pub top: PathBuf,
}

/// One machine to be. The owner keeps it in the workspace's record: `slot` and `uuid` must not
/// change during the workspace's life.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workspace's id; also the name of its folders and its cgroup.
    pub workspace: String,
    /// The workspace's name, for people.
    pub name: String,
    /// Proves later that a process is this machine; also the guest's machine id.
    pub uuid: Uuid,
    /// Its disk began as another machine's, whose machine id is on it.
    pub is_fork: bool,
    /// A small number, unique among the workspaces of this host: gives the machine its user.
    pub slot: u32,
    /// Processors.
    pub vcpus: u32,
    /// RAM of the guest.
    pub memory_mb: u64,
    /// Size of the disk.
    pub disk_gb: u32,
    /// What it boots from.
    pub images: Images,
    /// Where it lives.
    pub folders: Folders,
    /// The disk; `None` is one layer of the workspace's own, [`Folders::disk`].
    pub disk: Option<Disk>,
    /// BLAKE3 of the link token, 64 hex digits.
    pub token_hash_hex: String,
    /// The guest's host name.
    pub hostname: String,
    /// The link's carrier.
    pub carrier: Carrier,
    /// The guest's context id, 3 or above; needed by the two vsock carriers.
    pub cid: Option<u32>,
    /// The network interface; a machine without one has nothing but loopback.
    pub nic: Option<Nic>,
}

impl Plan {
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
        for folder in [&self.folders.run_dir, &self.folders.disk_dir, &self.folders.log_dir] {
            if !folder.is_absolute() || folder.file_name() != Some(self.workspace.as_ref()) {
                return bad("each folder must be absolute and named after the workspace");
            }
        }
        Ok(())
    }

    /// The disk, also where the plan leaves it open.
    pub fn disk(&self) -> Disk {
        let own = || Disk { layers: Vec::new(), top: self.folders.disk() };
        self.disk.clone().unwrap_or_else(own)
    }

    /// A part of the image that this kind of machine cannot do without.
    pub(super) fn image<'a>(
        part: &'a Option<PathBuf>,
        what: &'static str,
    ) -> Result<&'a Path, Error> {
        part.as_deref().ok_or_else(|| Error::BadPlan(format!("the image has no {what}")))
    }

    /// What marks the machine's processes as this plan's: see [`super::sweep`].
    pub(super) fn tag(&self) -> String {
        format!("hivekeep:{}:{}", self.uuid, self.folders.run_dir.display())
    }
}
