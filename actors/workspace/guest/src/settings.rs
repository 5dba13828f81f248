//! Settings of the daemon, and names that its processes agree on.

use std::path::PathBuf;

/// Present in the run folder while the machine shuts down.
pub const SHUTDOWN_FILE: &str = "shutdown";

/// Kind of place that the daemon runs in, and so what is its own to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// A kernel of its own: clock, host name, entropy and disk belong to it.
    Vm,
    /// Namespaces on a shared kernel.
    Sandbox,
}

/// Settings that the daemon is started with.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// BLAKE3 of the host's token.
    pub token_hash: [u8; 32],
    /// Path of this program, for its shims.
    pub exe: PathBuf,
    /// Kept over reboots: jobs and tasks.
    pub state_dir: PathBuf,
    /// Gone after a reboot.
    pub run_dir: PathBuf,
    /// The kind of place.
    pub place: GuestKind,
    /// A cgroup v2 directory for commands; `None` contains by subreaper.
    pub cgroup_root: Option<PathBuf>,
}
