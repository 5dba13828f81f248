//! Folders of the daemon on this host.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Config, ConfigSources};

/// The longest path that fits into a Unix socket's address, with its NUL.
const SOCKET_PATH_BYTES: usize = 107;

/// The daemon's places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaemonFolders {
    /// State that outlives the daemon.
    pub state: PathBuf,
    /// Sockets, the lock, machines' run folders; gone after a reboot.
    pub run: PathBuf,
    /// Logs.
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
pub(crate) const LOG_FILE: &str = "daemon.jsonl";

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
