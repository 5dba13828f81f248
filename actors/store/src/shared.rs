//! State shared by the writer thread and the handles, and statistics of the journal.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::compact::{COPY_DIR, OLD_DIR};
use crate::copier::BackupRequest;
use crate::database::{self, Database};
use crate::open::JOURNAL_DIR;
use crate::state_files::DirLock;
use crate::{Compacted, Error, JournalEvent, Options, Seq, fsx};

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
    lost_total: AtomicU64,
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

/// Counters since the journal was opened, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JournalStats {
    /// Number of requests answered, of every kind.
    pub requests: u64,
    /// Number of records appended.
    pub records: u64,
    /// Number of commits, each with its fsyncs.
    pub commits: u64,
    /// Mean number of requests per commit.
    pub mean_batch: f64,
    /// Duration of the last commit.
    pub last_commit_ms: f64,
    /// Number of requests that wait for the writer now.
    pub queue_depth: usize,
    /// Number of streams now.
    pub streams: u64,
    /// Oldest event that is kept; above `last_event` when there is none.
    pub oldest_event: Seq,
    /// Last event.
    pub last_event: Seq,
    /// Maximum number of events kept, apart from those that are trimmed together.
    pub events_kept: u64,
    /// Number of events that found the queue full and were lost.
    pub events_lost: u64,
    /// Size of the database on disk now, including the copy that a compaction makes.
    pub disk_bytes: u64,
    /// Live part of it: keys and values.
    pub live_bytes: u64,
    /// Remaining part: what was replaced or forgotten, and the database's own overhead.
    pub dead_bytes: u64,
    /// True while the journal is compacted.
    pub compacting: bool,
    /// Number of compactions since start, including the one at start.
    pub compactions: u64,
    /// Last compaction.
    pub compacted: Option<Compacted>,
    /// Reason why the latest compaction failed, if it did; it is tried again.
    pub compaction_given_up: Option<String>,
    /// Reason why the journal refuses everything, if it does.
    pub poisoned: Option<String>,
}

/// Gathers the statistics. Blocks: it walks the database's directory.
pub(crate) fn gather_stats(
    shared: &JournalShared,
    options: &Options,
    queue_depth: usize,
) -> JournalStats {
    let counters = &shared.counters;
    let (requests, commits) = (counters.requests.load(Relaxed), counters.commits.load(Relaxed));
    let live_bytes = counters.live_bytes.load(Relaxed);
    let dirs = [JOURNAL_DIR, COPY_DIR, OLD_DIR];
    let disk_bytes = dirs.iter().map(|name| fsx::tree_bytes(&shared.dir.join(name))).sum::<u64>();
    let compaction = shared.compaction().clone();
    JournalStats {
        requests,
        records: counters.records.load(Relaxed),
        commits,
        mean_batch: if commits == 0 { 0.0 } else { requests as f64 / commits as f64 },
        last_commit_ms: counters.last_commit_micros.load(Relaxed) as f64 / 1000.0,
        queue_depth,
        streams: counters.streams.load(Relaxed),
        oldest_event: Seq::new(shared.oldest_event.load(Relaxed)),
        events_kept: options.events_kept,
        last_event: Seq::new(shared.last_event.load(Relaxed)),
        events_lost: counters.lost_total.load(Relaxed),
        disk_bytes,
        live_bytes,
        dead_bytes: disk_bytes.saturating_sub(live_bytes),
        compacting: counters.compacting.load(Relaxed),
        compactions: compaction.count,
        compacted: compaction.last,
        compaction_given_up: compaction.given_up,
        poisoned: match shared.stopped() {
            Some(StopReason::Poisoned { cause }) => Some(cause),
            _ => None,
        },
    }
}
