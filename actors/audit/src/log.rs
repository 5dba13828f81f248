//! The writing end.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use chrono::Utc;
use serde::Serialize;
use serde_json::json;

use crate::{
    Error, Head, Options,
    chain::push_line,
    entry::{CUT, MENDED, RESUMED, write_entry},
    files::TailFile,
    worker::{self, SegmentWriter},
};

/// Bytes that may wait for the disk.
const MOST_WAITING: usize = 8 * 1024 * 1024;

/// The log of a running daemon. Clones share it; the last one dropped closes it.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<LogShared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// State shared between the log's callers and its worker.
#[derive(Debug)]
pub(crate) struct LogShared {
    state: Mutex<LogState>,
    /// Notified when there is something to sync, or the log is closing.
    pub(crate) changed: Condvar,
    /// Notified when lines are in the state folder.
    pub(crate) settled: Condvar,
}

#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) head: Head,
    /// File that the lines of the batch are in.
    pub(crate) tail: TailFile,
    /// Lines that the worker has not taken yet.
    pub(crate) batch: Batch,
    /// Bytes that the worker has taken and not synced.
    pub(crate) taken_bytes: usize,
    /// Number of the last entry that is in the state folder.
    pub(crate) settled: u64,
    /// Entries that could not be written and that no entry counts yet.
    lost: u64,
    pub(crate) closing: bool,
}

/// Lines for one sync.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Number of the first entry.
    pub(crate) first: u64,
    pub(crate) lines: Vec<u8>,
}

impl AuditLog {
    /// Opens or creates the log, and brings into it what a killed daemon left in the run folder. Blocks.
    ///
    /// # Errors
    /// When a folder or file cannot be used, or the last file does not end with an entry.
    pub fn open(state: &Path, run: &Path, options: &Options) -> Result<Self, Error> {
        for folder in [state, run] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(Error::io(folder))?;
        }
        let tails = TailFile::both(run)?;
        let (worker, tail, found) = SegmentWriter::recover(state, options, tails)?;
        let (head, batch) = (found.head, Batch::default());
        let settled = head.seq;
        let state =
            LogState { head, tail, batch, taken_bytes: 0, settled, lost: 0, closing: false };
        let shared = Arc::new(LogShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            settled: Condvar::new(),
        });
        let thread = worker::start(worker, shared.clone())?;
        let log = Self(Arc::new(Handle { shared, worker: Mutex::new(Some(thread)) }));
        if found.mended_bytes > 0 {
            log.note(MENDED, &json!({ "bytes": found.mended_bytes }));
        }
        if let Some(told) = found.cut {
            tracing::error!(%told, head = %found.head, "the audit log was cut");
            let (found, told) = (found.head.seq, told.to_string());
            log.note(CUT, &json!({ "found": found, "told": told }));
        }
        Ok(log)
    }

    /// Appends an entry, which a killed daemon does not lose once this has returned: one write(2). After
    /// entries that could not be written, one that counts them comes first.
    ///
    /// # Errors
    /// When the entry cannot be written; it is counted.
    pub fn append(&self, kind: &str, data: &impl Serialize) -> Result<Head, Error> {
        self.0.shared.append(kind, data)
    }

    /// Appends an entry about the log or the daemon. One that cannot be written is counted as such, and
    /// [`AuditLog::ready`] tries again.
    pub fn note(&self, kind: &str, data: &impl Serialize) {
        if let Err(error) = self.append(kind, data) {
            tracing::error!(%error, kind, "not in the audit log");
        }
    }

    /// Tells whether entries can be written: after some that could not be, by writing one that counts them.
    ///
    /// # Errors
    /// When that entry cannot be written either.
    pub fn ready(&self) -> Result<(), Error> {
        self.0.shared.change(LogState::resume)
    }

    /// The last entry.
    pub fn head(&self) -> Head {
        self.0.shared.lock().head
    }

    /// Waits until every entry appended before is in the state folder, where readers find it. False when
    /// the disk does not take them in time. Blocks.
    pub fn settle(&self, patience: Duration) -> bool {
        let shared = &self.0.shared;
        let state = shared.lock();
        let wanted = state.head.seq;
        let waits = |state: &mut LogState| state.settled < wanted;
        let waited = shared.settled.wait_timeout_while(state, patience, waits);
        waited.is_ok_and(|(_, waited)| !waited.timed_out())
    }

    /// Syncs what is there and ends the worker. Later appends stay in the run folder, where the next
    /// start finds them. Blocks.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if worker.is_some_and(|worker| worker.join().is_err()) {
            tracing::error!("the audit log's worker panicked");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl LogShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LogState> {
        // Nothing between lock and unlock panics; were it so, head and batch still agree.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn append(&self, kind: &str, data: &impl Serialize) -> Result<Head, Error> {
        // Serialised before the lock is taken, which all callers share.
        let json = serde_json::to_vec(data).map_err(|error| Error::Failed(error.to_string()));
        self.change(|state| {
            let written = state.resume().and_then(|()| state.push(kind, &json?));
            state.lost += u64::from(written.is_err());
            written
        })
    }

    /// Changes the state, and wakes the worker for the first line of a batch.
    fn change<T>(&self, change: impl FnOnce(&mut LogState) -> T) -> T {
        let mut state = self.lock();
        let idle = state.batch.lines.is_empty();
        let changed = change(&mut state);
        if idle && !state.batch.lines.is_empty() {
            self.changed.notify_one();
        }
        changed
    }
}

impl LogState {
    /// Appends an entry that counts those missing in the log, if any are.
    fn resume(&mut self) -> Result<(), Error> {
        if self.lost > 0 {
            self.push(RESUMED, json!({ "entries_lost": self.lost }).to_string().as_bytes())?;
            self.lost = 0;
        }
        Ok(())
    }

    /// Adds an entry to the batch, and writes it to the tail. `data` is JSON.
    fn push(&mut self, kind: &str, data: &[u8]) -> Result<Head, Error> {
        let waiting_bytes = self.batch.lines.len() + self.taken_bytes;
        if waiting_bytes > MOST_WAITING {
            return Err(Error::Behind { waiting_bytes });
        }
        let seq = self.head.seq + 1;
        let start = self.batch.lines.len();
        let hash = push_line(&mut self.batch.lines, self.head.hash, |json| {
            write_entry(json, seq, Utc::now(), kind, data);
        });
        if let Err(error) = self.tail.push(&self.batch.lines[start..]) {
            self.batch.lines.truncate(start);
            return Err(error);
        }
        if start == 0 {
            self.batch.first = seq;
        }
        self.head = Head { seq, hash };
        Ok(self.head)
    }
}
