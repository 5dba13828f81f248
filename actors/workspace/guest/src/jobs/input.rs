//! Standard input of a process, as its shim holds it: a named pipe in the job's folder.
//!
//! Any daemon writes to the pipe, and it is there as long as the shim is, so that no death of a daemon
//! closes it or loses what was written. A process without a terminal reads the pipe itself; to a
//! terminal the shim carries the bytes over.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use hivekeep_protocol::PtySize;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::dir::JobDir;

/// End-of-file character of a terminal.
const END_OF_FILE: u8 = 4;
/// Bytes that are carried to a terminal at once, and pieces of one turn.
const PIECE_BYTES: usize = 4096;
const PIECES: usize = 16;

/// Input of a process.
#[derive(Debug)]
pub(super) enum Input {
    /// None: the command was given `/dev/null`.
    Null,
    /// The writing end of the pipe, until it is closed.
    Pipe(Option<OwnedFd>),
    /// A terminal.
    Terminal(Terminal),
}

/// Terminal of a process, seen from outside.
#[derive(Debug)]
pub(super) struct Terminal {
    master: File,
    /// Held open, so that a process that has closed all of its own can open it again.
    _slave: OwnedFd,
    pipe: File,
    pending: Vec<u8>,
    /// The last byte that was carried over ended a line.
    at_line_start: bool,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Open,
    Ordered,
    Sent,
}

/// Both sides of a terminal.
pub(super) struct Pty {
    pub(super) master: File,
    pub(super) slave: OwnedFd,
}

impl Pty {
    /// # Errors
    /// When the guest has no terminals.
    pub(super) fn open(size: PtySize) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::termios::tcsetwinsize(&master, winsize(size))?;
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self { master: master.into(), slave })
    }
}

impl Input {
    /// Makes the pipe of a process without a terminal, with the end that it reads.
    ///
    /// # Errors
    /// When the pipe cannot be made.
    pub(super) fn piped(job: &JobDir) -> io::Result<(Self, OwnedFd)> {
        make(job)?;
        let read = open(job, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let write = open(job, OFlags::WRONLY)?;
        rustix::io::ioctl_fionbio(&read, false)?;
        Ok((Self::Pipe(Some(write)), read))
    }

    /// Makes the pipe of a process with a terminal.
    ///
    /// # Errors
    /// When the pipe cannot be made.
    pub(super) fn terminal(job: &JobDir, pty: Pty) -> io::Result<Self> {
        make(job)?;
        // Open for writing too, so that a daemon's end does not end the input.
        let pipe = open(job, OFlags::RDWR | OFlags::NONBLOCK)?.into();
        let Pty { master, slave } = pty;
        let pending = Vec::new();
        let (at_line_start, end) = (true, End::Open);
        Ok(Self::Terminal(Terminal { master, _slave: slave, pipe, pending, at_line_start, end }))
    }

    /// Descriptor and event to poll for until [`Self::carry`] has something to do.
    pub(super) fn poll(&self) -> Option<PollFd<'_>> {
        let Self::Terminal(it) = self else { return None };
        match (it.pending.is_empty(), it.end) {
            (false, _) => Some(PollFd::new(&it.master, PollFlags::OUT)),
            (true, End::Sent) => None,
            (true, _) => Some(PollFd::new(&it.pipe, PollFlags::IN)),
        }
    }

    /// Carries over what the terminal takes now.
    pub(super) fn carry(&mut self) {
        if let Self::Terminal(terminal) = self {
            terminal.carry();
        }
    }

    /// Sets the size of the terminal.
    ///
    /// # Errors
    /// For what is no terminal.
    pub(super) fn resize(&self, size: PtySize) -> io::Result<()> {
        let Self::Terminal(terminal) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok(rustix::termios::tcsetwinsize(&terminal.master, winsize(size))?)
    }

    /// Closes the input, behind what was written before.
    pub(super) fn close(&mut self) {
        match self {
            Self::Null => {}
            Self::Pipe(end) => drop(end.take()),
            Self::Terminal(it) if it.end == End::Open => {
                it.end = End::Ordered;
                it.carry();
            }
            Self::Terminal(_) => {}
        }
    }
}

impl Terminal {
    fn carry(&mut self) {
        for _ in 0..PIECES {
            if self.pending.is_empty() && !self.take() {
                return;
            }
            match self.master.write(&self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody is left who could read it.
                Err(_) => self.pending.clear(),
            }
        }
    }

    /// Takes the next piece. Returns whether there is one.
    fn take(&mut self) -> bool {
        if self.end == End::Sent {
            return false;
        }
        let mut piece = [0; PIECE_BYTES];
        match self.pipe.read(&mut piece) {
            Ok(n @ 1..) => {
                self.at_line_start = piece[n - 1] == b'\n';
                self.pending.extend_from_slice(&piece[..n]);
            }
            _ if self.end == End::Ordered => {
                // In the middle of a line the first end-of-file character only hands the line over.
                let times = if self.at_line_start { 1 } else { 2 };
                self.pending.resize(times, END_OF_FILE);
                self.end = End::Sent;
            }
            _ => return false,
        }
        true
    }
}

fn winsize(size: PtySize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
}

fn make(job: &JobDir) -> io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::mkfifoat(rustix::fs::CWD, job.input_pipe(), mode)?)
}

fn open(job: &JobDir, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        job.input_pipe(),
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?)
}
