//! Descriptors that a parent handed over by number.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

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
