//! Descriptors that the runtime watches.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
