//! Options of the process itself.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// More threads than this serve nothing.
const MOST_THREADS: usize = 512;

/// How the daemon lives on its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonOptions {
    /// Where state is kept. Unset: `/var/lib/hivekeep` for root, otherwise
    /// `$XDG_STATE_HOME/hivekeep` (`~/.local/state/hivekeep`).
    pub state_dir: Option<PathBuf>,
    /// Where sockets and the lock are. Unset: `/run/hivekeep` for root,
    /// otherwise `$XDG_RUNTIME_DIR/hivekeep`.
    pub run_dir: Option<PathBuf>,
    /// Where logs are written. Unset: `/var/log/hivekeep` for root, otherwise
    /// `logs` in the state directory.
    pub log_dir: Option<PathBuf>,
    /// The Unix socket for clients. Unset: `hivekeep.sock` in the run directory.
    pub socket: Option<PathBuf>,
    /// Threads that serve clients and actors. Unset: half of the processors that
    /// the daemon may use, at least 1; the other half is left to the machines. A
    /// call that changes threads waits for each to wake up, so more of them make
    /// a single call slower, not quicker.
    #[schemars(range(min = 1, max = 512))]
    pub worker_threads: Option<NonZeroUsize>,
    /// What is logged: a level, or directives such as `info,hivekeep=debug`.
    pub log_level: String,
    /// A log file is rotated at this size.
    #[schemars(range(min = 1))]
    pub log_file_mb: u64,
    /// How many rotated log files are kept.
    #[schemars(range(min = 1))]
    pub log_files_kept: u64,
    /// MCP clients at once over the socket, and requests at once over HTTP, of
    /// which one user has half at most; one more is refused. The command line has
    /// places of its own.
    #[schemars(range(min = 1))]
    pub max_connections: usize,
    /// How long a client may take to say who it is, and then to begin with the
    /// protocol.
    #[schemars(range(min = 1))]
    pub handshake_timeout_secs: u64,
    /// The longest message from a client over the socket. All clients together have
    /// room for eight of them on their way in and in work, of which one user has half
    /// of what others leave; what is longer than 64 KiB waits unread for its turn, and
    /// has 30 s to be whole then.
    #[schemars(range(min = 1, max = 1024))]
    pub max_message_mb: usize,
    /// Free space that each file system keeps for what goes on: below it new
    /// workspaces, forks, snapshots, downloads and notes are refused, and a machine
    /// that found no room for a write waits. At most a tenth of a file system; 0
    /// refuses nothing.
    pub free_space_floor_mb: u64,
    /// How much one client may send, in MiB a second. What is more waits unread.
    /// One message of the longest kind passes at once.
    pub read_mb_per_sec: NonZeroU32,
    /// How many messages of one client are read in a second, and at once. What
    /// is more waits unread. All clients over HTTP count as one, here and above.
    pub messages_per_sec: NonZeroU32,
    /// How long an ordered stop waits for calls that are running.
    pub drain_timeout_secs: u64,
    /// Whether an ordered stop also stops the workspaces. They are left running
    /// otherwise, and taken up again at the next start.
    pub stop_workspaces: bool,
}

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a literal above zero")
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            state_dir: None,
            run_dir: None,
            log_dir: None,
            socket: None,
            worker_threads: None,
            // The library that speaks MCP tells of each message at `info`.
            log_level: "info,rmcp=warn".to_owned(),
            log_file_mb: 16,
            log_files_kept: 8,
            max_connections: 256,
            handshake_timeout_secs: 10,
            // The cap that MCP libraries put on one line.
            max_message_mb: 16,
            free_space_floor_mb: 1024,
            read_mb_per_sec: count(32),
            messages_per_sec: count(2_000),
            drain_timeout_secs: 10,
            stop_workspaces: false,
        }
    }
}

impl DaemonOptions {
    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = self.log_level.parse::<tracing_subscriber::EnvFilter>() {
            wrong.push(("log_level", format!("no log directives: {error}")));
        }
        wrong
    }

    /// Number of threads that serve clients and actors.
    pub fn workers(&self) -> usize {
        // Fails where the kernel tells nothing of it; one thread serves all.
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let half = (processors / 2).clamp(1, MOST_THREADS);
        self.worker_threads.map_or(half, NonZeroUsize::get)
    }

    /// The longest message, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_mb * 1024 * 1024
    }
}
