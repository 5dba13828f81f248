//! The pipes that a command writes to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;

use crate::sys::spawn::Stdio;
use crate::sys::watched;

/// The daemon's ends. Reading does not block.
#[derive(Debug)]
pub struct OutputReaders {
    /// Standard output of the command.
    pub stdout: AsyncFd<OwnedFd>,
    /// Standard error of the command.
    pub stderr: AsyncFd<OwnedFd>,
}

/// The command's ends, to be dropped once it has them; writing blocks.
#[derive(Debug)]
pub(super) struct Writers {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Makes both pipes and watches them. Must be called within the runtime.
pub(super) fn pipes() -> io::Result<(OutputReaders, Writers)> {
    let ((stdout, out), (stderr, err)) = (pipe()?, pipe()?);
    Ok((OutputReaders { stdout, stderr }, Writers { stdout: out, stderr: err }))
}

fn pipe() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((watched::readable(read)?, write))
}

impl Writers {
    /// Standard streams of a command with this input.
    pub(super) fn stdio<'fd>(&'fd self, stdin: BorrowedFd<'fd>) -> Stdio<'fd> {
        let (stdout, stderr) = (self.stdout.as_fd(), self.stderr.as_fd());
        Stdio::of(stdin, stdout, stderr)
    }
}
