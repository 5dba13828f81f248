//! System requests: configuration, liveness, snapshots, shutdown of the guest; its network interface, users, volumes,
//! and byte streams to its ports, as of a proxy's CONNECT.
//!
//! A stream is one call. Content travels both ways on [`crate::Stream::Content`] under credit, of which the host has
//! none at first: the guest's first credit says that the port has taken the connection. Either side half-closes by an
//! end frame. The reply comes when both have ended, or the connection has broken.

use serde::{Deserialize, Serialize};

/// Liveness and round-trip measurement; answered without touching anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// Payload, which is echoed.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// Answer to [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Payload of the ping.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// Configures the guest after each new link; idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configure {
    /// Host name to set (a DNS label).
    pub hostname: String,
    /// Wall clock of the host, Unix milliseconds; the guest steps its clock when it differs by more
    /// than half a second. `None` leaves the clock alone.
    pub clock_unix_ms: Option<u64>,
    /// Random bytes of the host for the guest's pool; may be empty.
    #[serde(with = "serde_bytes")]
    pub entropy: Vec<u8>,
    /// Grow the root file system to its device.
    pub grow_root: bool,
}

/// Answer to [`Configure`]: the settings now in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Host name in effect.
    pub hostname: String,
    /// Amount by which the clock was stepped.
    pub clock_step_ms: i64,
    /// Number of entropy bytes credited.
    pub entropy_bytes: u32,
    /// Size of the root file system.
    pub root_total_bytes: u64,
    /// Reason why growing the file system failed, if it was asked for and failed.
    pub grow_error: Option<String>,
}

/// Requests memory and disk usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage;

/// Answer to [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Milliseconds since the guest's kernel (sandbox: its daemon) started.
    pub uptime_ms: u64,
    /// Root file system size.
    pub root_total_bytes: u64,
    /// Root file system space in use.
    pub root_used_bytes: u64,
    /// Guest memory, as the guest sees it.
    pub memory_total_bytes: u64,
    /// Guest memory free for use.
    pub memory_available_bytes: u64,
    /// Number of processes in the guest.
    pub processes: u32,
}

/// Ends every process, syncs the disks and powers off (sandbox: exits).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// Time between SIGTERM and SIGKILL.
    pub grace_ms: u64,
}

/// Answer to [`Shutdown`], sent before the power is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShuttingDown;

/// Gives a guest that was started from another machine's memory an identity of its own. Applied as
/// a whole or refused; idempotent. The link that carried the request stays open; the next handshake
/// needs the new token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reidentify {
    /// BLAKE3 of the new link token. The guest's daemon keeps it over its own restarts.
    pub token_hash: [u8; 32],
    /// Host name to set (a DNS label).
    pub hostname: String,
    /// Machine id for `/etc/machine-id`: 32 lower-case hexadecimal digits.
    pub machine_id: String,
    /// Id of this copy. Reported in [`crate::GuestWelcome::boot_id`] from now on, because the kernel's
    /// own boot id is that of the machine it was copied from.
    pub instance_id: String,
    /// Wall clock of the host, Unix milliseconds.
    pub clock_unix_ms: u64,
    /// Random bytes of the host; the kernel's generator is reseeded from them. At least 32.
    #[serde(with = "serde_bytes")]
    pub entropy: Vec<u8>,
}

impl std::fmt::Debug for Reidentify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Random bytes that become a secret are not shown.
        f.debug_struct("Reidentify")
            .field("hostname", &self.hostname)
            .field("machine_id", &self.machine_id)
            .field("instance_id", &self.instance_id)
            .finish_non_exhaustive()
    }
}

/// Answer to [`Reidentify`]: the values read back afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reidentified {
    /// Host name in effect.
    pub hostname: String,
    /// Contents of `/etc/machine-id`.
    pub machine_id: String,
    /// Instance id, as in [`crate::GuestWelcome::boot_id`] from now on.
    pub instance_id: String,
    /// Wall clock of the guest, Unix milliseconds.
    pub clock_unix_ms: i64,
    /// Amount by which the clock was stepped.
    pub clock_step_ms: i64,
    /// Number of entropy bytes credited.
    pub entropy_bytes: u32,
}

/// Prepares the disk for a snapshot of the disk alone by writing out the page cache. A snapshot
/// with memory does not need this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesce {
    /// Maximum time for which all writes to the root file system are blocked until [`Thaw`],
    /// whatever happens to the host. At most 60,000. `None` only syncs.
    pub freeze_ms: Option<u32>,
}

/// Answer to [`Quiesce`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesced {
    /// True if the root file system is frozen.
    pub frozen: bool,
}

/// Ends the freeze of a [`Quiesce`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thaw;

/// Answer to [`Thaw`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thawed {
    /// True if the root file system was frozen until now. If not, the time was up before, and a
    /// copy taken meanwhile may be torn.
    pub was_frozen: bool,
}

/// Sets the one interface of a machine besides loopback, exclusively: former addresses, routes and
/// neighbours are removed, IPv6 is off. Idempotent: settings that are right already are not
/// touched.
///
/// The interface comes up. Without a carrier its gateway is not queried; a later call, which then
/// finds everything set, queries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNetwork {
    /// MAC address of the interface: unicast.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub address: [u8; 4],
    /// Length of the network prefix in bits, 8 to 30.
    pub prefix_len: u8,
    /// Address of the next hop to everything else, in the same network.
    pub gateway: [u8; 4],
    /// Server for `/etc/resolv.conf`; `None` leaves that file without a server.
    pub dns: Option<[u8; 4]>,
}

/// Answer to [`SetNetwork`]: the settings read back from the kernel and from the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// Name of the interface in the guest.
    pub interface: String,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Only IPv4 address of the interface.
    pub address: [u8; 4],
    /// Length of the network prefix in bits.
    pub prefix_len: u8,
    /// Target of the default route.
    pub gateway: [u8; 4],
    /// First server of `/etc/resolv.conf`.
    pub dns: Option<[u8; 4]>,
    /// True if the gateway answered an ARP request. If not, it was queried for about three seconds,
    /// or the interface has no carrier.
    pub gateway_answers: bool,
}

/// Finds a user in the guest's `/etc/passwd`. A number need not be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindUser {
    /// Name or number.
    pub user: String,
}

/// Answer to [`FindUser`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFound {
    /// User id.
    pub uid: u32,
    /// Id of the user's own group.
    pub gid: u32,
    /// Absolute path of the home; `/` where the guest names none.
    pub home: String,
}

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

/// Connects to a TCP port of the guest itself: of its loopback (IPv4, then IPv6), then of its own address.
/// The last of the refusals is answered as [`crate::GuestCode::PortClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStream {
    /// Port, from 1.
    pub port: u16,
}

/// Takes the next connection that a program of the guest makes to a TCP port of 127.0.0.1. The guest's daemon
/// listens there from the first such call on, until none has been open for [`crate::limits::LISTEN_IDLE_SECS`]: what
/// connects while the host is away waits for it. As with [`OpenStream`], the first credit says that the
/// stream is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptStream {
    /// Port, from [`crate::limits::MIN_LISTEN_PORT`].
    pub port: u16,
}

/// Answer to [`OpenStream`] and [`AcceptStream`], when both directions have ended in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamClosed {
    /// Number of bytes that came from the guest's end of the connection and were sent to the host.
    pub sent_bytes: u64,
}
