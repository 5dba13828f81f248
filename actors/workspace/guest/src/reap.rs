//! The `reap` role: starts shims, each a subreaper around one command where there is no cgroup to hold it.
//!
//! Starting this program costs more than forking it; so one process, of one thread, forks a shim for each command
//! that it is given by its socket (see [`crate::contain::reaper`]). It ends when the daemon does.
//!
//! All that a command starts stays below its shim: nothing leaves its tree by a double fork or a new session. Told
//! by a socket of its own, or by the daemon's death, a shim kills until no child is left.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hivekeep_protocol::{Exit, decode, encode};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, WaitOptions};

use crate::contain::reaper::{COMMAND_FDS, ShimMessage, descendants};
use crate::contain::{KILL_DEADLINE, raw};
use crate::sys::descriptors;
use crate::sys::signals::{self, kill};
use crate::sys::spawn::{self, EXTRA_FD, Program, Stdio};

const QUIET: [i32; 5] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Runs the role.
pub fn run() -> ExitCode {
    let Ok(orders) = descriptors::inherited(EXTRA_FD) else {
        crate::say!("reap: started without its socket");
        return ExitCode::from(2);
    };
    signals::block(&QUIET);
    // Shims that have ended are collected by the kernel.
    signals::ignore(libc::SIGCHLD);
    match serve(orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::say!("reap: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Forks a shim for each command until the daemon hangs up. Returns in each shim, too, at its end.
fn serve(orders: OwnedFd) -> io::Result<()> {
    while let Some(command) = received(&orders)? {
        match spawn::fork() {
            Ok(Some(_)) => {}
            Ok(None) => {
                drop(orders);
                return reap(command);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                tell(&command[0], ShimMessage::CannotStart(spawn::SpawnStep::Clone, errno));
            }
        }
    }
    Ok(())
}

/// Starts a command and sees it to its end.
fn reap([notes, stdout, stderr, program]: [OwnedFd; COMMAND_FDS]) -> io::Result<()> {
    signals::restore_defaults();
    let _leads_no_group_before = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let children = signals::descriptor(&[libc::SIGCHLD])?;
    let program = read(program)?;
    match ProcessTree::start(&program, &stdout, &stderr) {
        Ok(tree) => {
            drop((stdout, stderr));
            supervise(&notes, tree, &children)
        }
        Err(error) => {
            let (step, errno) = error.parts();
            tell(&notes, ShimMessage::CannotStart(step, errno));
            Ok(())
        }
    }
}

fn tell(notes: &OwnedFd, note: ShimMessage) {
    if let Ok(bytes) = encode(&note) {
        let _ = rustix::io::write(notes, &bytes);
    }
}

/// Descriptors of the command; `None` when the daemon has hung up.
fn received(orders: &OwnedFd) -> io::Result<Option<[OwnedFd; COMMAND_FDS]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COMMAND_FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let came = rustix::io::retry_on_intr(|| {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(orders, &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    match <[OwnedFd; COMMAND_FDS]>::try_from(fds.collect::<Vec<_>>()) {
        Ok(fds) => Ok(Some(fds)),
        Err(_) if came.bytes == 0 => Ok(None),
        Err(_) => Err(io::Error::other("a command came without its descriptors")),
    }
}

fn read(program: OwnedFd) -> io::Result<Program> {
    let (mut file, mut bytes) = (File::from(program), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    decode(&bytes).map_err(io::Error::other)
}

fn supervise(notes: &OwnedFd, mut tree: ProcessTree, children: &OwnedFd) -> io::Result<()> {
    tell(notes, ShimMessage::Running(raw(rustix::process::getpid())));
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
    fn start(program: &Program, stdout: &OwnedFd, stderr: &OwnedFd) -> Result<Self, spawn::Error> {
        let stdin = io::stdin();
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
