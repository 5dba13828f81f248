//! Child process that ends with all that it starts, also while it is being started, and the group of the
//! kernel's (cgroup) that bounds what all its processes take together.
//!
//! bubblewrap has its first process die with the daemon only after it has begun to make the sandbox. What
//! dies some milliseconds before leaves a sandbox that goes on alone. So bubblewrap leads a session, whose
//! processes are killed together, and what a daemon left that was killed itself is found by its
//! environment when the next one starts.
#![allow(unsafe_code)]

use std::{
    fmt::Debug,
    fs,
    io::{self, ErrorKind},
    ops::{Deref, DerefMut},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    process::ExitStatus,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, setsid},
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::HostBounds;

/// Maker of groups, of the family that has the kernel's.
pub trait HostGroups: Debug + Send + Sync {
    /// Makes an empty group with bounds. Blocks for some system calls.
    ///
    /// # Errors
    /// When the kernel refuses it, or one of the bounds.
    fn make(&self, bounds: HostBounds) -> io::Result<Box<dyn HostGroup>>;
}

/// Group of one program. Dropped, its processes are killed, and it is removed.
pub trait HostGroup: Debug + Send + Sync {
    /// The file by which a process joins it, with a `0`.
    ///
    /// # Errors
    /// Of the kernel.
    fn procs(&self) -> io::Result<OwnedFd>;

    /// Kills all of it.
    fn kill(&self);

    /// True if the kernel has ended it because it took more memory than it may.
    fn ran_out(&self) -> bool;
}

/// This daemon's; empty where the host has none.
static GROUPS: OnceLock<Arc<dyn HostGroups>> = OnceLock::new();

/// Has the programs that are started from now on run in groups. A second maker changes nothing.
pub fn bound_by(groups: Arc<dyn HostGroups>) {
    let _first = GROUPS.set(groups);
}

pub(super) fn make_group(bounds: HostBounds) -> io::Result<Option<Box<dyn HostGroup>>> {
    GROUPS.get().map(|groups| groups.make(bounds)).transpose()
}

/// Command of a program, with the group that it joins.
#[derive(Debug)]
pub struct HostCommand {
    command: Command,
    pub(super) group: Option<Box<dyn HostGroup>>,
}

impl HostCommand {
    /// bubblewrap, in no group yet.
    pub fn bwrap() -> Self {
        Command::new("bwrap").into()
    }

    fn into_parts(self) -> (Command, Option<Box<dyn HostGroup>>) {
        (self.command, self.group)
    }
}

impl From<Command> for HostCommand {
    fn from(command: Command) -> Self {
        Self { command, group: None }
    }
}

impl Deref for HostCommand {
    type Target = Command;

    fn deref(&self) -> &Command {
        &self.command
    }
}

impl DerefMut for HostCommand {
    fn deref_mut(&mut self) -> &mut Command {
        &mut self.command
    }
}

/// Variable of bubblewrap's processes, not of what runs in them: their folder, which is in the daemon's state.
pub(super) const MARK: &str = "HIVEKEEP_HOST_PROCESS";
/// Time to wait for the end of processes that another daemon left.
const END_LIMIT: Duration = Duration::from_secs(5);

/// bubblewrap with what runs in it. Dropped, all of it is killed.
#[derive(Debug)]
pub struct HostChild {
    child: Child,
    /// Its session's processes; `None` once they are gone.
    session: Option<Pid>,
    /// All that it started, where the host has groups for it.
    group: Option<Box<dyn HostGroup>>,
}

impl HostChild {
    /// Starts bubblewrap. `folder` is its own in the daemon's state.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn spawn(command: impl Into<HostCommand>, folder: &Path) -> Result<Self, String> {
        let (mut command, group) = command.into().into_parts();
        command.env(MARK, folder).kill_on_drop(true);
        // SAFETY: between fork and exec it makes one system call.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => "bubblewrap (`bwrap`) is not installed".to_owned(),
            _ => format!("it cannot be started: {error}"),
        })?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, session: pid, group })
    }

    /// Process id, until the end was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its standard streams, which are there once if they were asked for.
    ///
    /// # Errors
    /// When one is not.
    pub fn streams(&mut self) -> Result<(ChildStdin, ChildStdout, ChildStderr), String> {
        let child = &mut self.child;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((stdin, stdout, stderr)),
            _ => Err("it has no standard streams".to_owned()),
        }
    }

    /// Its standard error, if that alone was asked for.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for its end, at which what it left is killed. May be cancelled.
    ///
    /// # Errors
    /// Of the kernel.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.kill();
        Ok(status)
    }

    /// Kills all of it. Its end is not waited for.
    pub fn kill(&mut self) {
        // The session's number is not given to anybody as long as one of its processes is there.
        if let Some(session) = self.session.take() {
            // The processes may have ended.
            let _killed = kill_process_group(session, Signal::KILL);
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// True if the kernel has ended it because its processes took more memory together than they may.
    pub(super) fn ran_out(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.ran_out())
    }
}

impl Drop for HostChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills what an earlier daemon with this state left, and waits for its end. Blocks.
///
/// # Errors
/// When the host's processes cannot be listed.
pub fn end_orphans(state: &Path) -> io::Result<usize> {
    let orphans: Vec<OwnedFd> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| orphan(pid, state))
        .collect();
    for orphan in &orphans {
        // The process may have ended.
        let _killed = pidfd_send_signal(orphan, Signal::KILL);
    }
    let until = Instant::now() + END_LIMIT;
    for orphan in &orphans {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        // The handle of a process that has ended is readable.
        if poll(&mut [PollFd::new(orphan, PollFlags::IN)], Some(&left))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, "they do not end"));
        }
    }
    Ok(orphans.len())
}

/// Handle of a process that was started with a folder in `state`. The handle is taken first, so that
/// what is read is that process's.
fn orphan(pid: i32, state: &Path) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = format!("{MARK}=");
    let folder =
        environment.split(|byte| *byte == 0).find_map(|it| it.strip_prefix(mark.as_bytes()))?;
    let folder = Path::new(std::ffi::OsStr::from_bytes(folder));
    (folder.starts_with(state) && pid != std::process::id().cast_signed()).then_some(handle)
}

#[cfg(test)]
mod tests;
