//! Child processes: found on the path, bounded in time and output, ended as a group.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

/// Maximum size that is kept of a program's standard output.
const STDOUT_LIMIT: usize = 8 << 20;
/// Maximum size of the end of standard error that goes into an error.
const STDERR_TAIL: usize = 4 << 10;
/// Grace period of a program after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// Finds a program on the search path, or in the folders of administrators' tools.
pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
        .ok_or_else(|| Error::Requirement {
            what: format!("the program {name}"),
            remedy: "see: hivekeep check".to_owned(),
        })
}

fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Process group that is killed on drop, also when the waiting future is dropped.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The group may have ended by itself just now.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// `ToolFailed` with the end of its standard error, `ToolTimeout`, `Cancelled`; in each case no
/// process of its group is left.
pub(crate) async fn run(
    mut command: Command,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<String> {
    let program = command.as_std().get_program();
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C.UTF-8")
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::io("start", &name))?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let stdout = child.stdout.take().expect("standard output is piped");
    let stderr = child.stderr.take().expect("standard error is piped");
    let ended = async {
        let (out, err, status) =
            tokio::join!(head(stdout, STDOUT_LIMIT), tail(stderr, STDERR_TAIL), child.wait());
        status.map(|status| (out, err, status)).map_err(Error::io("wait for", &name))
    };
    let outcome = tokio::select! {
        ended = tokio::time::timeout(limit, ended) => ended.unwrap_or_else(|_| Err(Error::ToolTimeout {
            tool: name.clone(),
            after_secs: limit.as_secs(),
        })),
        () = cancel.cancelled() => Err(Error::Cancelled),
    };
    match outcome {
        Ok((out, _, status)) if status.success() => {
            group.0 = None;
            Ok(String::from_utf8_lossy(&out).into_owned())
        }
        Ok((_, err, status)) => Err(Error::ToolFailed {
            tool: name,
            status: status.to_string(),
            stderr: String::from_utf8_lossy(&err).trim().to_owned(),
        }),
        Err(error) => {
            end(&group, &mut child).await;
            Err(error)
        }
    }
}

/// Terminates the group, so that it undoes its mounts, and kills it after the grace period.
async fn end(group: &Group, child: &mut Child) {
    group.signal(Signal::TERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        group.signal(Signal::KILL);
        let _ = child.wait().await;
    }
}

/// Reads the first `limit` bytes; the rest is read and dropped, so that the writer never blocks.
async fn head(mut pipe: impl AsyncRead + Unpin, limit: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(got @ 1..) = pipe.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len()).min(got);
        kept.extend_from_slice(&buffer[..room]);
    }
    kept
}

/// Reads the last `limit` bytes.
async fn tail(mut pipe: impl AsyncRead + Unpin, limit: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(got @ 1..) = pipe.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..got]);
        let excess = kept.len().saturating_sub(limit);
        kept.drain(..excess);
    }
    kept
}
