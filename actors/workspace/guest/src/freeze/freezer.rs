//! Handle on the thread that holds the disk.

use std::fs::File;
use std::sync::{Mutex, PoisonError, Weak, mpsc};

use tokio::sync::oneshot;

use crate::sys::ioctl;

/// Asks a freezing thread to thaw; it answers whether the disk was frozen until then.
pub(super) type Order = oneshot::Sender<bool>;

/// The thread that holds the disk, if one does.
#[derive(Debug, Default)]
pub struct Freezer {
    /// Held for an exchange, never across an await.
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) orders: mpsc::Sender<Order>,
    /// The thread holds the other end as long as it has work.
    pub(super) alive: Weak<()>,
}

impl Freezer {
    /// Thaws what an earlier daemon may have left frozen.
    pub fn new() -> Self {
        if let Ok(root) = File::open("/") {
            // An error says that it is not frozen, or not ours to thaw.
            let _ = ioctl::thaw(&root);
        }
        Self::default()
    }

    pub(super) fn thread(&self) -> std::sync::MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
