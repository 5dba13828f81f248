//! Descriptors that the runtime watches in one direction.
#![allow(unsafe_code)]

use std::{io, os::fd::OwnedFd, sync::Arc};

use tokio::io::{Interest, unix::AsyncFd};

/// Watches until it is dropped. Must be called within the runtime.
///
/// # Errors
/// When it cannot be watched, or this very descriptor is watched already.
pub(super) fn register(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an owned descriptor stays the same and open while it is owned, and the
    // watcher shares the ownership.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
