//! Server process over its standard streams, in a sandbox of namespaces.
//!
//! Whatever the server starts is in one namespace of processes, whose first process dies with the daemon:
//! nothing of it outlives either. That is why bubblewrap runs it also where the operator wants no sandbox.

use std::{path::Path, process::Stdio};

use hivekeep_runtime::{
    host_process::{
        self, HostBounds, HostChild, HostCommand, HostProgram, HostSandbox, PROGRAM_PATH,
        StderrTail,
    },
    json_text, read_secret,
};
use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use tokio::{
    fs::DirBuilder,
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream},
    process::ChildStdin,
};

use crate::{SandboxKind, link::SourceShared};

/// Longest line of a server, which is its longest message.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
const PIPE_BYTES: usize = 64 * 1024;
/// The home of a server within its sandbox.
const HOME: &str = "/srv/source";

/// A server that runs. Dropped, it is killed with everything that it started.
pub(crate) struct ServerProcess {
    child: HostChild,
    stderr: StderrTail,
}

pub(crate) type StdioTransport = AsyncRwTransport<RoleClient, DuplexStream, ChildStdin>;

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
        Ok((process, AsyncRwTransport::new(well_formed(stdout), stdin)))
    }

    /// Why it ended, and what it said last.
    pub(crate) async fn last_words(&mut self) -> String {
        self.stderr.last_words(&mut self.child).await
    }
}

/// The lines that a server writes, with well-formed texts. One that no message may have is left out.
fn well_formed(stdout: impl AsyncRead + Unpin + Send + 'static) -> DuplexStream {
    let (mut lines, read) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(async move {
        let mut stdout = BufReader::new(stdout);
        let mut is_rest = false;
        loop {
            let mut line = Vec::new();
            let piece = (&mut stdout).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await;
            let whole = line.ends_with(b"\n");
            let was_rest = std::mem::replace(&mut is_rest, !whole);
            if piece.is_err() || (!whole && (line.len() as u64) < MAX_LINE_BYTES) {
                return;
            }
            let mended = json_text::mended(&line);
            // Whoever reads them may be gone.
            if whole && !was_rest && lines.write_all(mended.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    read
}

/// bubblewrap as it is asked for.
async fn sandbox(shared: &SourceShared, home: &Path) -> Result<HostCommand, String> {
    let options = &shared.options;
    if options.sandbox == SandboxKind::None {
        let mut command = HostCommand::bwrap();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_well_formed_and_one_that_is_too_long_costs_itself_alone() {
        let long = vec![b'x'; usize::try_from(2 * MAX_LINE_BYTES + 1).expect("it fits")];
        let said = [b"\"c\\ud83d\"\n", &long[..], b"\n\"a\xff\"\nrest"].concat();
        let mut read = String::new();
        let mut lines = well_formed(std::io::Cursor::new(said));
        lines.read_to_string(&mut read).await.expect("read");
        assert_eq!(read, "\"c\\ufffd\"\n\"a\u{fffd}\"\n");
    }
}
