//! State shared by the writer thread and the handles.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, watch};

use crate::backup::BackupRequest;
use crate::database::{self, Database};
use crate::lock::DirLock;
use crate::{Compacted, Error, JournalEvent};

/// Reason why the writer stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// Stopped by order, or because every handle was dropped.
    Closed,
    /// A commit failed or the thread panicked.
    Poisoned {
        /// Description of the failure.
        cause: String,
    },
}

impl From<StopReason> for Error {
    fn from(stopped: StopReason) -> Error {
        match stopped {
            StopReason::Closed => Error::Closed,
            StopReason::Poisoned { cause } => Error::Poisoned { cause },
        }
    }
}

/// Open database with its lock. The lock is dropped last, so that a directory that can be locked
/// has no database open in it.
#[derive(Clone)]
pub(crate) struct OpenDatabase {
    pub(crate) db: Arc<Database>,
    lock: Arc<DirLock>,
}

impl OpenDatabase {
    /// Closes the database and frees the directory, once the reads that have begun are over.
    pub(crate) fn close(self) {
        let until = Instant::now() + database::CLOSING;
        while Arc::strong_count(&self.lock) > 1 {
            if Instant::now() > until {
                tracing::error!("a closed journal is still read");
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Counters for `JournalStats`.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) last_commit_micros: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) live_bytes: AtomicU64,
    pub(crate) compacting: AtomicBool,
    /// Number of events that found the queue full, since start.
    pub(crate) lost_total: AtomicU64,
    /// Part of them that no event has reported yet.
    pub(crate) lost_unreported: AtomicU64,
}

/// Compactions since start, including the one at start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Compactions {
    pub(crate) count: u64,
    pub(crate) last: Option<Compacted>,
    /// Reason why the latest one failed, if it did.
    pub(crate) given_up: Option<String>,
}

impl Compactions {
    pub(crate) fn done(&mut self, compacted: Compacted) {
        *self = Compactions { count: self.count + 1, last: Some(compacted), given_up: None };
    }
}

pub(crate) struct JournalShared {
    /// Database, taken out when the writer stops, so that stale handles do not keep the directory
    /// locked. Locked only to clone or take.
    live: Mutex<Option<OpenDatabase>>,
    stopped: watch::Sender<Option<StopReason>>,
    /// Durable events, as they commit.
    pub(crate) events: broadcast::Sender<Arc<JournalEvent>>,
    pub(crate) oldest_event: AtomicU64,
    pub(crate) last_event: AtomicU64,
    pub(crate) counters: JournalCounters,
    compactions: Mutex<Compactions>,
    /// Next backup to make.
    order: Mutex<Option<BackupRequest>>,
    pub(crate) dir: PathBuf,
}

impl JournalShared {
    pub(crate) fn new(
        db: Arc<Database>,
        lock: DirLock,
        dir: PathBuf,
        events_buffered: usize,
    ) -> Self {
        JournalShared {
            live: Mutex::new(Some(OpenDatabase { db, lock: Arc::new(lock) })),
            stopped: watch::Sender::new(None),
            events: broadcast::Sender::new(events_buffered),
            oldest_event: AtomicU64::new(1),
            last_event: AtomicU64::new(0),
            counters: JournalCounters::default(),
            compactions: Mutex::default(),
            order: Mutex::default(),
            dir,
        }
    }

    /// Database, or the reason why there is none.
    pub(crate) fn live(&self) -> Result<OpenDatabase, Error> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        live.ok_or_else(|| self.why_stopped())
    }

    /// Exchanges the database and returns the old one. Readers of the old one continue on it; it
    /// contains what was committed until now.
    pub(crate) fn exchange(&self, db: Arc<Database>) -> Option<Arc<Database>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_mut().map(|live| std::mem::replace(&mut live.db, db))
    }

    /// Takes the database out; the caller closes it.
    pub(crate) fn take_live(&self) -> Option<OpenDatabase> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn stop(&self, stopped: StopReason) {
        self.stopped.send_replace(Some(stopped));
    }

    pub(crate) fn stopped(&self) -> Option<StopReason> {
        self.stopped.borrow().clone()
    }

    pub(crate) fn watch_stopped(&self) -> watch::Receiver<Option<StopReason>> {
        self.stopped.subscribe()
    }

    /// Error for a caller that the writer did not answer.
    pub(crate) fn why_stopped(&self) -> Error {
        self.stopped().map_or(Error::Closed, Error::from)
    }

    pub(crate) fn compaction(&self) -> MutexGuard<'_, Compactions> {
        self.compactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the order for the writer; refuses a second one.
    pub(crate) fn order(&self, order: BackupRequest) -> Result<(), Error> {
        let mut slot = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_some_and(|waiting| !waiting.reply.is_closed()) {
            return Err(Error::invalid("another backup is waiting"));
        }
        *slot = Some(order);
        Ok(())
    }

    pub(crate) fn take_order(&self) -> Option<BackupRequest> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn lose_event(&self) {
        self.counters.lost_total.fetch_add(1, Relaxed);
        self.counters.lost_unreported.fetch_add(1, Relaxed);
    }
}
