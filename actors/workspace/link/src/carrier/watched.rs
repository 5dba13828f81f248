//! Registration of descriptors with the runtime for one direction.
#![allow(unsafe_code)]

use std::{io, os::fd::OwnedFd, sync::Arc};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers a descriptor until the result is dropped. Must be called within the runtime.
///
/// # Errors
/// Fails when the descriptor cannot be polled, or is registered already.
pub(super) fn register(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an owned descriptor stays the same and open while it is owned, and the
    // watcher shares the ownership.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
