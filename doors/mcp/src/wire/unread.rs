//! A high-water mark: how much waits to be written, and waiting until it is little.

use std::sync::Arc;

use tokio::sync::watch;

/// Answers and refusals that wait to be written; then nothing is read.
pub(super) const MOST: usize = 64;
/// Bytes of answers that wait to be written; then nothing is read.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Counter of the answers that wait to be written. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<watch::Sender<Backlog>>);

#[derive(Debug, Default, Clone, Copy)]
struct Backlog {
    answers: usize,
    bytes: usize,
}

/// An answer's share of the count, until it is dropped.
pub(super) struct Waiting {
    unread: Unread,
    bytes: usize,
}

impl Unread {
    #[cfg(test)]
    pub(super) fn full(&self) -> bool {
        self.0.borrow().answers >= MOST
    }

    /// Waits until little waits to be written.
    pub(super) async fn room(&self) {
        let room = |backlog: &Backlog| backlog.answers < MOST && backlog.bytes < MOST_BYTES;
        if room(&self.0.borrow()) {
            return;
        }
        // The sender is here, so it cannot be gone.
        let mut waiting = self.0.subscribe();
        let _room = waiting.wait_for(room).await;
    }

    /// Counts one more answer.
    pub(super) fn one(&self) -> Waiting {
        self.0.send_modify(|backlog| backlog.answers += 1);
        Waiting { unread: self.clone(), bytes: 0 }
    }
}

impl Waiting {
    /// Adds the answer's length, once it is known.
    pub(super) fn weighs(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.unread.0.send_modify(|backlog| backlog.bytes += bytes);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.unread.0.send_modify(|backlog| {
            backlog.answers -= 1;
            backlog.bytes -= self.bytes;
        });
    }
}
