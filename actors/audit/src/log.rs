//! The writing end.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use chrono::Utc;
use serde::Serialize;
use serde_json::json;

use crate::{
    Error, Head, Options,
    chain::push_line,
    entry::{CUT, MENDED, RESUMED, Writing},
    tail::TailFile,
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

/// LogState of the log between its callers and its worker.
#[derive(Debug)]
pub(crate) struct LogShared {
    state: Mutex<LogState>,
    /// Told when there is something to sync, or the log is closing.
    pub(crate) changed: Condvar,
}

#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) head: Head,
    pub(crate) tails: [TailFile; 2],
    /// Index of the tail that is written.
    pub(crate) current: usize,
    /// Lines that are in the tails alone.
    pub(crate) batch: Batch,
    /// Bytes that the worker has taken and not synced.
    pub(crate) taken_bytes: usize,
    /// Entries that could not be written since the last one that was, and why.
    failing: Option<(u64, String)>,
    pub(crate) closing: bool,
}

/// Lines for one sync.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Number of the first.
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
        let mut tails = TailFile::both(run)?;
        let (worker, found) = SegmentWriter::recover(state, options, &tails)?;
        tails.iter_mut().try_for_each(TailFile::clear)?;
        let state = LogState {
            head: found.head,
            tails,
            current: 0,
            batch: Batch::default(),
            taken_bytes: 0,
            failing: None,
            closing: false,
        };
        let shared = Arc::new(LogShared { state: Mutex::new(state), changed: Condvar::new() });
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

    /// Appends an entry, which a killed daemon does not lose once this has returned. Takes some
    /// microseconds.
    ///
    /// # Errors
    /// When it cannot be written: see [`AuditLog::ready`].
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

    /// Tells whether entries can be written; after one that could not be, by writing one that says so.
    ///
    /// # Errors
    /// When they cannot.
    pub fn ready(&self) -> Result<(), Error> {
        let lost = match &self.0.shared.lock().failing {
            None => return Ok(()),
            Some((lost, _)) => *lost,
        };
        self.append(RESUMED, &json!({ "entries_lost": lost })).map(drop)
    }

    /// The last entry.
    pub fn head(&self) -> Head {
        self.0.shared.lock().head
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
        // Nothing between lock and unlock panics half way; were it so, head and batch still agree.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn append(&self, kind: &str, data: &impl Serialize) -> Result<Head, Error> {
        let mut state = self.lock();
        let written = state.push(kind, data);
        match &written {
            Ok(_) => {
                state.failing = None;
                // The worker sleeps until the first line of a batch.
                if state.batch.first == state.head.seq {
                    self.changed.notify_one();
                }
            }
            Err(error) => {
                let lost = state.failing.take().map_or(0, |(lost, _)| lost);
                state.failing = Some((lost + 1, error.to_string()));
            }
        }
        written
    }
}

impl LogState {
    fn push(&mut self, kind: &str, data: &impl Serialize) -> Result<Head, Error> {
        let waiting_bytes = self.batch.lines.len() + self.taken_bytes;
        if waiting_bytes > MOST_WAITING {
            return Err(Error::Behind { waiting_bytes });
        }
        let seq = self.head.seq + 1;
        let writing = Writing { seq, at: Utc::now(), kind, data };
        let json =
            serde_json::to_vec(&writing).map_err(|error| Error::Failed(error.to_string()))?;
        let start = self.batch.lines.len();
        let hash = push_line(&mut self.batch.lines, self.head.hash, &json);
        if let Err(error) = self.tails[self.current].push(&self.batch.lines[start..]) {
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
