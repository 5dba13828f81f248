//! Server process over its standard streams, in a sandbox of namespaces.
//!
//! Whatever the server starts is in one namespace of processes, whose first process dies with the daemon:
//! nothing of it outlives either. That is why bubblewrap runs it also where the operator wants no sandbox.

use std::{path::Path, process::Stdio};

use hivekeep_runtime::{
    host_process::{
        self, HostBounds, HostChild, HostProgram, HostSandbox, PROGRAM_PATH, StderrTail,
    },
    read_secret,
};
use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use tokio::{
    fs::DirBuilder,
    process::{ChildStdin, ChildStdout, Command},
};

use crate::{SandboxKind, link::SourceShared};

/// The home of a server within its sandbox.
const HOME: &str = "/srv/source";

/// A server that runs. Dropped, it is killed with everything that it started.
pub(crate) struct ServerProcess {
    child: HostChild,
    stderr: StderrTail,
}

pub(crate) type StdioTransport = AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>;

impl ServerProcess {
    /// Starts a server.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn start(shared: &SourceShared) -> Result<(Self, StdioTransport), String> {
        let options = &shared.options;
        let home = shared.folders.state.join("sources").join(shared.name.as_str());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&home).await;
        made.map_err(|error| format!("its folder {} cannot be made: {error}", home.display()))?;
        let mut variables = vec![
            ("PATH".to_owned(), PROGRAM_PATH.to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ];
        let at_home = match options.sandbox {
            SandboxKind::Namespaces => HOME.to_owned(),
            SandboxKind::None => home.to_string_lossy().into_owned(),
        };
        variables.push(("HOME".to_owned(), at_home));
        variables.extend(options.env.clone());
        for (name, file) in &options.env_files {
            variables.push((name.clone(), read_secret(file).await?));
        }
        let mut command = sandbox(shared, &home).await?;
        command
            .args(&options.command)
            .env_clear()
            .envs(variables)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = HostChild::spawn(command, &home)?;
        let (stdin, stdout, stderr) = child.streams()?;
        let process = Self { child, stderr: StderrTail::of(stderr) };
        Ok((process, AsyncRwTransport::new(stdout, stdin)))
    }

    /// Why it ended, and what it said last.
    pub(crate) async fn last_words(&mut self) -> String {
        self.stderr.last_words(&mut self.child).await
    }
}

/// bubblewrap as it is asked for.
async fn sandbox(shared: &SourceShared, home: &Path) -> Result<Command, String> {
    let options = &shared.options;
    if options.sandbox == SandboxKind::None {
        let mut command = Command::new("bwrap");
        command.args(host_process::unconfined()).arg("--");
        return Ok(command);
    }
    let bounds =
        HostBounds { memory_mb: Some(options.memory_mb), processes: options.max_processes };
    let sandbox = HostSandbox {
        hostname: "source",
        uid: shared.users.uid(HostProgram::Source(shared.name.as_str())),
        home: (home, HOME),
        network: options.network,
        etc: host_process::ETC,
        folders: &options.folders,
        tmp_mb: None,
        nests: false,
        bounds,
    };
    sandbox.command().await
}
