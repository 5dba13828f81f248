//! The daemon's side of the [`crate::reap`] shim.
//!
//! A socket joins the two; its messages are [`ShimMessage`]s from the shim. The daemon sends nothing: it
//! shuts its side down, and that is the order to kill. So a daemon that dies takes its commands
//! with it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hivekeep_protocol::{Exit, decode};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::outputs::{self, OutputReaders};
use super::{Error, raw, wait_for};
use crate::sys::spawn::{self, Program, Stdio};
use crate::sys::watched;

/// Message of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShimMessage {
    /// The command runs.
    Running,
    /// execve, or what comes before it, failed with this errno.
    CannotStart(i32),
    /// The command ended; whether it left other processes.
    Exited(Exit, bool),
    /// Nothing is left; this many had to be killed.
    Cleared(u32),
}

/// Most bytes of a [`ShimMessage`] on the socket.
const MAX_NOTE_BYTES: usize = 16;

/// Starter of shims.
#[derive(Debug)]
pub struct Shim {
    exe: CString,
    null: File,
}

impl Shim {
    /// `exe` is this program.
    ///
    /// # Errors
    /// When the path holds a NUL, or there is no /dev/null.
    pub fn new(exe: &Path) -> io::Result<Self> {
        let exe = CString::new(exe.as_os_str().as_bytes())?;
        Ok(Self { exe, null: File::open("/dev/null")? })
    }

    /// Starts the program under a shim, which has its environment, working directory and limits
    /// from here. Blocking and within the runtime, as for a cgroup.
    pub(super) fn start(&self, program: Program) -> Result<(Reaped, OutputReaders), Error> {
        let mut argv = vec![c"hivekeep-guest".to_owned(), c"reap".to_owned(), program.path];
        argv.extend(program.argv);
        let shim = Program { path: self.exe.clone(), argv, ..program };
        let (readers, writers) = outputs::pipes()?;
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
        let stdio = writers.stdio(self.null.as_fd());
        let stdio = Stdio { extra: Some(theirs.as_fd()), ..stdio };
        let started = spawn::spawn(&shim, &stdio)?;
        let reaped = Reaped {
            pid: raw(started.pid),
            pidfd: watched::readable(started.pidfd)?,
            notes: watched::readable(ours)?,
            exit: None,
            others: true,
            cleared: None,
            collected: false,
        };
        Ok((reaped, readers))
    }
}

/// A command under its shim.
#[derive(Debug)]
pub(super) struct Reaped {
    /// The shim's.
    pid: i32,
    pidfd: AsyncFd<OwnedFd>,
    notes: AsyncFd<OwnedFd>,
    exit: Option<Exit>,
    others: bool,
    cleared: Option<u32>,
    /// The shim itself has been waited for.
    collected: bool,
}

impl Reaped {
    pub(super) fn shim(&self) -> i32 {
        self.pid
    }

    /// Waits for the shim to have started the command.
    pub(super) async fn confirmed(&mut self) -> Result<(), Error> {
        match self.note().await? {
            ShimMessage::Running => Ok(()),
            ShimMessage::CannotStart(errno) => {
                self.collected = wait_for(&self.pidfd).await.is_ok();
                Err(spawn::Error::Exec(io::Error::from_raw_os_error(errno)).into())
            }
            ShimMessage::Exited(..) | ShimMessage::Cleared(_) => Err(Error::Lost),
        }
    }

    async fn note(&self) -> Result<ShimMessage, Error> {
        let mut bytes = [0; MAX_NOTE_BYTES];
        loop {
            let mut ready = self.notes.readable().await?;
            match ready.try_io(|fd| received(|| rustix::io::read(fd.get_ref(), &mut bytes[..]))) {
                Ok(Ok(n)) => return decode(&bytes[..n]).map_err(|_| Error::Lost),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Error::Lost);
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_would_block) => {}
            }
        }
    }

    pub(super) async fn exited(&mut self) -> Result<Exit, Error> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.take(self.note().await?);
        }
    }

    fn take(&mut self, note: ShimMessage) {
        match note {
            ShimMessage::Exited(exit, others) => {
                self.exit = Some(exit);
                self.others = others;
                if !others {
                    self.cleared = Some(0);
                }
            }
            ShimMessage::Cleared(killed) => self.cleared = Some(killed),
            ShimMessage::Running | ShimMessage::CannotStart(_) => {}
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.exit.is_some() && !self.others
    }

    pub(super) fn is_done(&self) -> bool {
        self.collected
    }

    pub(super) fn kill(&mut self) {
        let _ = rustix::net::shutdown(self.notes.get_ref(), rustix::net::Shutdown::Write);
    }

    pub(super) async fn settled(&mut self) -> Result<u32, Error> {
        while self.cleared.is_none() {
            self.take(self.note().await?);
        }
        if !self.collected {
            wait_for(&self.pidfd).await?;
            self.collected = true;
        }
        Ok(self.cleared.unwrap_or(0))
    }
}

/// Bytes of the next message; 0 at the end. The kernel looks for a message first and for the end
/// second (`unix_dgram_recvmsg`): messages sent in between are found by a second look alone.
fn received(mut read: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    match read()? {
        0 => Ok(read()?),
        bytes => Ok(bytes),
    }
}

/// Arguments of the shim: the program's path, then its whole argv.
pub fn command_of(
    args: impl Iterator<Item = impl AsRef<OsStr>>,
) -> Option<(CString, Vec<CString>)> {
    let mut words = args.map(|arg| CString::new(arg.as_ref().as_bytes()));
    let path = words.next()?.ok()?;
    let argv: Vec<CString> = words.collect::<Result<_, _>>().ok()?;
    (!argv.is_empty()).then_some((path, argv))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_message_sent_between_the_kernels_two_looks_is_read() {
        let mut looks = [0, 3, 0, 0].into_iter();
        let mut received = || received(|| Ok(looks.next().expect("two looks at most")));
        assert_eq!([received().expect("read"), received().expect("read")], [3, 0]);
    }

    /// Listens all the time, as the daemon does behind the message before.
    #[test]
    fn the_last_word_of_a_shim_is_heard() {
        let (to_shim, ends) = sync_channel::<OwnedFd>(1);
        let shim = std::thread::spawn(move || {
            for theirs in ends {
                rustix::io::write(&theirs, b"end").expect("sent");
            }
        });
        for _ in 0..50_000 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let pair =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let (ours, theirs) = pair.expect("sockets");
            to_shim.send(theirs).expect("it runs");
            let mut bytes = [0; MAX_NOTE_BYTES];
            let heard = loop {
                match received(|| rustix::io::read(&ours, &mut bytes[..])) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    heard => break heard.expect("read"),
                }
            };
            assert_eq!(heard, 3);
        }
        drop(to_shim);
        shim.join().expect("it sent them all");
    }
}
