//! Descriptors: handed over by a parent, watched by the runtime, and the peer's process behind a socket.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Takes an inherited descriptor and keeps it from the programs started later.
///
/// # Errors
/// When no such descriptor is open, or when it is a standard stream.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl fails when the descriptor is not open; each role takes its
    // inherited descriptor once, first thing, so nobody else owns it.
    unsafe {
        if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Keeps every descriptor but the standard streams from the programs started later, whatever the parent of
/// this process left open.
pub fn close_on_exec() {
    // SAFETY: changes only the flag; kernels before 5.11 refuse it and change nothing.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
}

/// A copy of a descriptor that the programs started later inherit; its number.
///
/// # Errors
/// When no descriptor is left.
pub fn handed_on(fd: &OwnedFd) -> io::Result<RawFd> {
    use std::os::fd::{AsRawFd, IntoRawFd};
    // SAFETY: duplicates an open descriptor; without CLOEXEC, which is the purpose.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 10) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) }.into_raw_fd())
}

/// Watches a descriptor for being readable. Must be called within the runtime.
///
/// # Errors
/// When it cannot be watched (a regular file).
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same and open while it is owned, and the
    // watcher owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Watches a device, which others may hold open too, in one direction.
///
/// # Errors
/// As [`readable`].
pub fn shared(file: Arc<File>, interest: Interest) -> io::Result<AsyncFd<Arc<File>>> {
    // SAFETY: as above; the watcher shares the ownership.
    Ok(unsafe { AsyncFd::register_with_interest(file, interest) }?)
}

/// Since Linux 6.5; libc has no name for it everywhere.
const SO_PEERPIDFD: libc::c_int = 77;

/// Whether the process that connected has ended, so that its id may be another's by now.
/// False as well where the kernel cannot tell.
pub fn has_ended(socket: impl AsFd) -> bool {
    pidfd(socket).is_ok_and(|pidfd| {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    })
}

fn pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `fd`, to it.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if got != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made by the kernel for us, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_peer_that_is_gone_is_told_from_one_that_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let _ours = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let (stream, _) = listener.accept().expect("a peer");
        if let Err(error) = pidfd(&stream) {
            return hivekeep_skip::skip(format_args!(
                "this kernel names no peer by a pidfd: {error}"
            ));
        }
        assert!(!has_ended(&stream));
        // A child connects and ends; a grandchild keeps its socket until this side is closed.
        let script = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                      os._exit(0) if os.fork() else s.recv(1)";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = python.spawn();
        let Ok(mut child) = child else { return hivekeep_skip::skip("no python3") };
        let (stream, _) = listener.accept().expect("a peer");
        child.wait().expect("our own child");
        assert!(has_ended(&stream));
    }
}
