//! Options of the process itself, and its folders on this host.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigSources};

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
    /// Filter of the log: a level, or directives such as `info,hivekeep=debug`.
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

/// The longest path that fits into a Unix socket's address, with its NUL.
const SOCKET_PATH_BYTES: usize = 107;

/// The daemon's places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaemonFolders {
    /// State that outlives the daemon.
    pub state: PathBuf,
    /// Sockets, the lock, machines' run folders; gone after a reboot.
    pub run: PathBuf,
    /// Folder of the daemon's log and of machines' logs.
    pub logs: PathBuf,
    /// The socket for clients.
    pub socket: PathBuf,
    /// The bearer token of the HTTP door.
    pub token_file: PathBuf,
}

impl DaemonFolders {
    pub(super) fn of(config: &Config, given: &ConfigSources) -> Self {
        let base = Base::of(given);
        let daemon = &config.daemon;
        let state = daemon.state_dir.clone().unwrap_or(base.state);
        let run = daemon.run_dir.clone().unwrap_or(base.run);
        let logs = daemon
            .log_dir
            .clone()
            .unwrap_or_else(|| base.logs.unwrap_or_else(|| state.join("logs")));
        let socket = daemon.socket.clone().unwrap_or_else(|| run.join("hivekeep.sock"));
        let token_file =
            config.http.mcp.token_file.clone().unwrap_or_else(|| state.join("mcp-token"));
        Self { state, run, logs, socket, token_file }
    }

    /// The folders that families know.
    pub fn shared(&self) -> hivekeep_runtime::Folders {
        let Self { state, run, logs, .. } = self.clone();
        hivekeep_runtime::Folders { state, run, logs }
    }

    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> impl Iterator<Item = (&'static str, String)> {
        let mut wrong = Vec::new();
        let places = [
            ("daemon.state_dir", &self.state),
            ("daemon.run_dir", &self.run),
            ("daemon.log_dir", &self.logs),
            ("daemon.socket", &self.socket),
            ("http.mcp.token_file", &self.token_file),
        ];
        for (key, path) in places {
            if !path.is_absolute() {
                wrong.push((key, format!("`{}` is not an absolute path", path.display())));
            }
        }
        let length = self.socket.as_os_str().len();
        if length > SOCKET_PATH_BYTES {
            wrong.push((
                "daemon.socket",
                format!(
                    "`{}` has {length} bytes, a socket's path at most {SOCKET_PATH_BYTES}",
                    self.socket.display()
                ),
            ));
        }
        wrong.into_iter()
    }

    /// The lock of the one daemon.
    pub fn lock_file(&self) -> PathBuf {
        self.run.join("daemon.lock")
    }

    /// The current log.
    pub fn log_file(&self) -> PathBuf {
        self.logs.join(LOG_FILE)
    }

    /// The audit log.
    pub fn audit(&self) -> PathBuf {
        self.state.join("audit")
    }

    /// Entries that are not in the audit log yet.
    pub fn audit_tail(&self) -> PathBuf {
        self.run.join("audit")
    }

    /// Secret that the access tokens of E2B's sandboxes are made from.
    pub fn e2b_secret(&self) -> PathBuf {
        self.state.join("e2b-secret")
    }

    /// The key of signed links to ports.
    pub fn port_url_key(&self) -> PathBuf {
        self.state.join("port-url-key")
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal")
    }
}

/// Name of the current log in the log folder.
pub const LOG_FILE: &str = "daemon.jsonl";

struct Base {
    state: PathBuf,
    run: PathBuf,
    logs: Option<PathBuf>,
}

impl Base {
    fn of(given: &ConfigSources) -> Self {
        if let Some(home) = given.var("HIVEKEEP_HOME") {
            let home = Path::new(home);
            return Self {
                state: home.join("state"),
                run: home.join("run"),
                logs: Some(home.join("logs")),
            };
        }
        if given.root {
            return Self {
                state: "/var/lib/hivekeep".into(),
                run: "/run/hivekeep".into(),
                logs: Some("/var/log/hivekeep".into()),
            };
        }
        let run = match given.var("XDG_RUNTIME_DIR") {
            Some(run) => Path::new(run).join("hivekeep"),
            // The daemon refuses a folder there that is not its user's own.
            None => PathBuf::from(format!("/tmp/hivekeep-{}", given.uid)),
        };
        Self { state: xdg(given, "XDG_STATE_HOME", ".local/state"), run, logs: None }
    }
}

fn xdg(given: &ConfigSources, variable: &str, below_home: &str) -> PathBuf {
    let base = given.var(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Path::new(given.var("HOME").unwrap_or("/")).join(below_home);
    base.unwrap_or_else(home).join("hivekeep")
}

/// The file to read: the named one must exist, a searched one may be missing.
pub(super) fn config_file(given: &ConfigSources) -> Option<PathBuf> {
    let named = given.file.clone().or_else(|| given.var("HIVEKEEP_CONFIG").map(PathBuf::from));
    named.or_else(|| {
        let mut places = vec![xdg(given, "XDG_CONFIG_HOME", ".config").join("config.toml")];
        if given.root {
            places.push("/etc/hivekeep/config.toml".into());
        }
        if let Some(home) = given.var("HIVEKEEP_HOME") {
            // A home of its own shares nothing with the user's daemon.
            places = vec![Path::new(home).join("config.toml")];
        }
        places.into_iter().find(|path| path.exists())
    })
}
