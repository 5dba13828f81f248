//! Launch plan: the machine that the owner wants, in plain values, with its network card.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hivekeep_ports::{ForwardedPort, InterfaceSettings};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Error;
use crate::folders::MachineFolders;

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

/// Network card: its MAC address and its host side.
#[derive(Debug, Clone)]
pub struct Nic {
    /// MAC address that the device reports. A guest from a memory image keeps the one it knows
    /// until it is reconfigured.
    pub mac: [u8; 6],
    /// Host side.
    pub end: NicEnd,
}

/// Host side of a machine's network card.
#[derive(Debug, Clone)]
pub enum NicEnd {
    /// Unplugged: frames of the guest are dropped.
    Unplugged,
    /// Queue of a tap: non-blocking, with a virtio header before each frame.
    Tap(Arc<OwnedFd>),
    /// Network stack of QEMU, which needs no privileges. It acts as the gateway and lets nothing
    /// through but the forwards.
    User {
        /// Settings that the guest is given. The network has at least eight addresses: QEMU takes
        /// one for itself.
        attachment: InterfaceSettings,
        /// Ports of the host that are forwarded to the guest.
        forwards: Vec<ForwardedPort>,
    },
}

impl Nic {
    /// Checks the settings; the error is for the plan's owner.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(format!("{} is not a valid address of a machine", mac_text(self.mac)));
        }
        let NicEnd::User { attachment, .. } = &self.end else { return Ok(()) };
        let InterfaceSettings { address, prefix_len, gateway, .. } = *attachment;
        let place = format!("{address}/{prefix_len} by {gateway}");
        if !(8..=29).contains(&prefix_len) {
            return Err(format!("{place}: the network must have 8 to 29 bits"));
        }
        if network(address, prefix_len) != network(gateway, prefix_len) || address == gateway {
            return Err(format!("{place}: the gateway must be another address of the network"));
        }
        Ok(())
    }
}

/// First address of the network.
pub(super) fn network(address: Ipv4Addr, prefix_len: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

/// Formats a MAC address as QEMU and people write it.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_can_have_is_refused() {
        let mac = [2, 0x68, 10, 213, 4, 5];
        let nic = |mac, address: [u8; 4], prefix_len, gateway: [u8; 4]| {
            let (address, gateway) = (address.into(), gateway.into());
            let attachment = InterfaceSettings { mac, address, prefix_len, gateway, dns: None };
            Nic { mac, end: NicEnd::User { attachment, forwards: vec![] } }
        };
        assert_eq!(nic(mac, [10, 213, 4, 5], 16, [10, 213, 0, 1]).check(), Ok(()));
        assert_eq!(network([10, 213, 4, 5].into(), 16), Ipv4Addr::new(10, 213, 0, 0));
        assert_eq!(network([10, 213, 4, 5].into(), 0), Ipv4Addr::UNSPECIFIED);
        for wrong in [
            nic([0; 6], [10, 213, 4, 5], 16, [10, 213, 0, 1]),
            nic([1, 0, 0, 0, 0, 1], [10, 213, 4, 5], 16, [10, 213, 0, 1]),
            nic(mac, [10, 213, 4, 5], 30, [10, 213, 4, 6]),
            nic(mac, [10, 213, 4, 5], 24, [10, 213, 5, 1]),
            nic(mac, [10, 213, 4, 5], 24, [10, 213, 4, 5]),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
