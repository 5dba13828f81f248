//! Signals by number: real-time signals have no name in rustix.
#![allow(unsafe_code)]

use std::io;

/// Sends a signal to one process.
///
/// # Errors
/// As kill(2): no such process, not permitted, no such signal.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: plain system call on a single process.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to every process but this one and, in a VM, the kernel's.
/// Only for a process that is PID 1 of its namespace.
pub fn kill_everyone(signal: i32) {
    if std::process::id() == 1 {
        // SAFETY: plain system call.
        unsafe { libc::kill(-1, signal) };
    }
}
