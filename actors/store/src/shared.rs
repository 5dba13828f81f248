//! What the writer thread and the handles share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{broadcast, watch};

use crate::lock::DirLock;
use crate::{Error, Event};

/// Why the writer stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to, or every handle was dropped.
    Closed,
    /// A commit failed or the thread panicked.
    Poisoned {
        /// What happened.
        cause: String,
    },
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Error {
        match stopped {
            Stopped::Closed => Error::Closed,
            Stopped::Poisoned { cause } => Error::Poisoned { cause },
        }
    }
}

/// The open database. The lock goes last, so that a directory that can be
/// locked has no database open in it.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) db: sled::Db,
    _lock: Arc<DirLock>,
}

/// Numbers for `Stats`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) last_commit_micros: AtomicU64,
    pub(crate) streams: AtomicU64,
    /// Events that found the queue full, since start.
    pub(crate) lost_total: AtomicU64,
    /// The part of them that no event has reported yet.
    pub(crate) lost_unreported: AtomicU64,
}

pub(crate) struct Shared {
    /// Taken out when the writer stops, so that stale handles do not keep the
    /// directory locked. Held only to clone or take.
    live: Mutex<Option<Live>>,
    stopped: watch::Sender<Option<Stopped>>,
    /// Durable events, as they commit.
    pub(crate) events: broadcast::Sender<Arc<Event>>,
    pub(crate) oldest_event: AtomicU64,
    pub(crate) last_event: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) dir: PathBuf,
}

impl Shared {
    pub(crate) fn new(db: sled::Db, lock: DirLock, dir: PathBuf, events_buffered: usize) -> Self {
        Shared {
            live: Mutex::new(Some(Live { db, _lock: Arc::new(lock) })),
            stopped: watch::Sender::new(None),
            events: broadcast::Sender::new(events_buffered),
            oldest_event: AtomicU64::new(1),
            last_event: AtomicU64::new(0),
            counters: Counters::default(),
            dir,
        }
    }

    /// The database, or why there is none.
    pub(crate) fn live(&self) -> Result<Live, Error> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        live.ok_or_else(|| self.why_stopped())
    }

    /// Lets go of the database. The caller drops it.
    pub(crate) fn take_live(&self) -> Option<Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn stop(&self, stopped: Stopped) {
        self.stopped.send_replace(Some(stopped));
    }

    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.stopped.borrow().clone()
    }

    pub(crate) fn watch_stopped(&self) -> watch::Receiver<Option<Stopped>> {
        self.stopped.subscribe()
    }

    /// The error for a caller whom the writer did not answer.
    pub(crate) fn why_stopped(&self) -> Error {
        self.stopped().map_or(Error::Closed, Error::from)
    }

    pub(crate) fn lose_event(&self) {
        self.counters.lost_total.fetch_add(1, Relaxed);
        self.counters.lost_unreported.fetch_add(1, Relaxed);
    }
}
