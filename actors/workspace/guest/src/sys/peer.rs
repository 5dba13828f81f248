//! Peer process of a Unix socket.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

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
