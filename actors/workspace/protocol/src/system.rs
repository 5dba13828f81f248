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
