//! Detaching the job shim from its parent.
#![allow(unsafe_code)]

use std::io;

/// Goes on in a child process; the calling one exits with status 0.
///
/// # Errors
/// When no process can be made, or when this process has a second thread: its
/// locks would stay held in the child for ever.
pub fn continue_in_child() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) != 1 {
        return Err(io::Error::other("forking needs a single-threaded process"));
    }
    // SAFETY: single-threaded as just checked, so no lock can be held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: ends this process without running exit handlers twice.
        _ => unsafe { libc::_exit(0) },
    }
}
