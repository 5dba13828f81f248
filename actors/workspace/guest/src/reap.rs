//! The `reap` role: a subreaper around one command where there is no cgroup to hold it.
//!
//! All that the command starts stays below it: nothing leaves its tree by a double fork or a new
//! session. One thread, no allocation that grows. Told by its socket (see
//! [`crate::contain::reaper`]), or by the daemon's death, it kills until no child is left.

use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hivekeep_protocol::{Exit, encode};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions};

use crate::contain::KILL_DEADLINE;
use crate::contain::reaper::{ShimMessage, command_of, descendants};
use crate::sys::descriptors;
use crate::sys::signals::{self, kill};
use crate::sys::spawn::{self, EXTRA_FD, Program, Stdio};

const QUIET: [i32; 5] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Runs the shim. `args` are the program's path and its argv.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Ok(notes) = descriptors::inherited(EXTRA_FD) else {
        crate::say!("reap: started without its socket");
        return ExitCode::from(2);
    };
    let supervised = match start(args) {
        Ok((tree, children)) => supervise(&notes, tree, &children),
        Err(
            spawn::Error::Workdir(cause)
            | spawn::Error::Exec(cause)
            | spawn::Error::Clone(cause)
            | spawn::Error::Cgroup(cause),
        ) => {
            tell(&notes, ShimMessage::CannotStart(cause.raw_os_error().unwrap_or(libc::EIO)));
            return ExitCode::FAILURE;
        }
    };
    match supervised {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::say!("reap: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(notes: &OwnedFd, note: ShimMessage) {
    if let Ok(bytes) = encode(&note) {
        let _ = rustix::io::write(notes, &bytes);
    }
}

/// The command, and a descriptor that tells of children.
fn start(args: impl Iterator<Item = OsString>) -> Result<(ProcessTree, OwnedFd), spawn::Error> {
    signals::block(&QUIET);
    let prepared = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let children =
        prepared.map_err(io::Error::from).and_then(|()| signals::descriptor(&[libc::SIGCHLD]));
    let children = children.map_err(spawn::Error::Exec)?;
    let nothing = || spawn::Error::Exec(io::ErrorKind::InvalidInput.into());
    let (path, argv) = command_of(args).ok_or_else(nothing)?;
    Ok((ProcessTree::start(&inherited(path, argv))?, children))
}

/// A program that gets what this process was given.
fn inherited(path: CString, argv: Vec<CString>) -> Program {
    let env = std::env::vars_os().filter_map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        CString::new(name.into_vec()).ok()
    });
    Program { path, argv, env: env.collect(), workdirs: Vec::new(), max_open_files: None }
}

fn supervise(notes: &OwnedFd, mut tree: ProcessTree, children: &OwnedFd) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    tell(notes, ShimMessage::Running);
    let mut told = false;
    loop {
        let mut fds = [PollFd::new(children, PollFlags::IN), PollFd::new(notes, PollFlags::IN)];
        rustix::event::poll(&mut fds, None)?;
        let kill_ordered = !fds[1].revents().is_empty();
        let mut drained = [0; 128];
        let _ = rustix::io::read(children, &mut drained);
        let others = tree.reap();
        if let (Some(exit), false) = (tree.exit, told) {
            tell(notes, ShimMessage::Exited(exit, others));
            if !others {
                return Ok(());
            }
            told = true;
        }
        if told && !others {
            tell(notes, ShimMessage::Cleared(0));
            return Ok(());
        }
        if kill_ordered {
            let killed = tree.kill_all()?;
            if let (Some(exit), false) = (tree.exit, told) {
                tell(notes, ShimMessage::Exited(exit, true));
            }
            tell(notes, ShimMessage::Cleared(killed));
            return Ok(());
        }
    }
}

/// Descendants of this process, the command first among them.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    /// The command itself.
    pub(crate) leader: Pid,
    /// Exit of the command, once it has been reaped.
    pub(crate) exit: Option<Exit>,
}

impl ProcessTree {
    fn start(program: &Program) -> Result<Self, spawn::Error> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let stdio = Stdio::of(stdin.as_fd(), stdout.as_fd(), stderr.as_fd());
        let started = spawn::spawn(program, &stdio)?;
        Ok(Self { leader: started.pid, exit: None })
    }

    /// Collects every child that has ended. Returns whether any is left.
    pub(crate) fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.leader {
                        self.exit = match (status.exit_status(), status.terminating_signal()) {
                            (Some(code), _) => Some(Exit::Code(code)),
                            (None, signal) => Some(Exit::Signal(signal.unwrap_or(libc::SIGKILL))),
                        };
                    }
                }
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_none_left) => return false,
            }
        }
    }

    /// Kills until nothing is left. Returns how many processes beside the leader
    /// were killed.
    ///
    /// # Errors
    /// When something is left at the deadline.
    pub(crate) fn kill_all(&mut self) -> io::Result<u32> {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let leader = self.leader.as_raw_nonzero().get();
        let (mut killed, end) = (HashSet::new(), Instant::now() + KILL_DEADLINE);
        while self.reap() {
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut any_new = false;
            for pid in descendants(me) {
                if kill(pid, libc::SIGKILL).is_ok() && pid != leader {
                    any_new |= killed.insert(pid);
                }
            }
            if !any_new {
                signals::wait_for(&[libc::SIGCHLD], Duration::from_millis(2));
            }
        }
        Ok(killed.len().try_into().unwrap_or(u32::MAX))
    }
}
