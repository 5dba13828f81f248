//! The guest itself: configuration, liveness, shutdown.

use serde::{Deserialize, Serialize};

/// Liveness and round-trip measurement; answered without touching anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// Echoed.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// Answer to [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The ping's payload.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

/// Applied by the guest after each new link; idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configure {
    /// Host name to set (a DNS label).
    pub hostname: String,
    /// The host's wall clock, Unix milliseconds; the guest steps its clock when
    /// it differs by more than half a second. `None` leaves the clock alone.
    pub clock_unix_ms: Option<u64>,
    /// Random bytes of the host for the guest's pool; may be empty.
    #[serde(with = "serde_bytes")]
    pub entropy: Vec<u8>,
    /// Grow the root file system to its device.
    pub grow_root: bool,
}

/// Answer to [`Configure`]: what really holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Host name in effect.
    pub hostname: String,
    /// The clock was stepped by this much.
    pub clock_step_ms: i64,
    /// Entropy bytes credited.
    pub entropy_bytes: u32,
    /// Size of the root file system.
    pub root_total_bytes: u64,
    /// Growing was asked for and failed, with the reason.
    pub grow_error: Option<String>,
}

/// Memory and disk in use.
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
    /// Processes in the guest.
    pub processes: u32,
}

/// Ends every process, syncs the disks and powers off (sandbox: exits).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// Time between SIGTERM and SIGKILL.
    pub grace_ms: u64,
}

/// Answer to [`Shutdown`], sent before the power goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShuttingDown;

/// Makes a guest that was started from another machine's memory a machine of its own. Applied as a
/// whole or refused; idempotent. The link that it came over stays open; the next handshake needs
/// the new token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reidentify {
    /// BLAKE3 of the new link token. The guest's daemon keeps to it over its own restarts.
    pub token_hash: [u8; 32],
    /// Host name to set (a DNS label).
    pub hostname: String,
    /// `/etc/machine-id`: 32 lower-case hexadecimal digits.
    pub machine_id: String,
    /// Names this copy. Told in [`crate::Welcome::boot_id`] from now on, for the kernel's own
    /// boot id is that of the machine it was copied from.
    pub instance_id: String,
    /// The host's wall clock, Unix milliseconds.
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

/// Answer to [`Reidentify`]: what was read back afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reidentified {
    /// Host name in effect.
    pub hostname: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// As [`crate::Welcome`] says from now on.
    pub instance_id: String,
    /// The guest's wall clock, Unix milliseconds.
    pub clock_unix_ms: i64,
    /// The clock was stepped by this much.
    pub clock_step_ms: i64,
    /// Entropy bytes credited.
    pub entropy_bytes: u32,
}

/// Makes the disk fit for a snapshot of the disk alone: what the page cache holds back is written.
/// A snapshot with memory needs no more than that, and not even that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesce {
    /// Holds back all writes to the root file system until [`Thaw`], but no longer than this,
    /// whatever becomes of the host. At most 60,000. `None` only syncs.
    pub freeze_ms: Option<u32>,
}

/// Answer to [`Quiesce`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesced {
    /// The root file system is frozen.
    pub frozen: bool,
}

/// Ends what [`Quiesce`] began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thaw;

/// Answer to [`Thaw`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thawed {
    /// The root file system was frozen until now. If not, the time was up before, and what was
    /// taken meanwhile may be torn.
    pub was_frozen: bool,
}
