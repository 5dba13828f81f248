//! System requests: configuration, liveness, snapshots, shutdown of the guest.

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
