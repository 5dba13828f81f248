//! Online compaction: the writer's part, between two commits.
//!
//! Commits wait for three things: the last few keys of the copy, their sync, and two renames. The
//! rest happens on the copier's thread. A failure before the renames costs only the copy;
//! compaction is tried again once the database has grown some more.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use chrono::Utc;

use crate::backup::BackupRequest;
use crate::compact::{self, COPY_DIR, Compacted, OLD_DIR};
use crate::copier::{self, Copier, CopyProgress};
use crate::database_copy::{self, DatabaseCopy};
use crate::open::JOURNAL_DIR;
use crate::writer::JournalWriter;
use crate::{Error, Options, crash, database, fsx};

/// Minimum growth of a database before the next try.
const GROWN_BYTES: u64 = 4 * 1024 * 1024;

/// State of the compaction or backup under way.
#[derive(Default)]
pub(crate) struct Compacting {
    job: Option<Job>,
    /// Log size below which no compaction begins.
    from_bytes: u64,
}

struct Job {
    copier: Copier,
    purpose: Purpose,
}

enum Purpose {
    Compaction {
        began: Instant,
        before_bytes: u64,
    },
    /// Backup order; `None` once its copy was taken.
    Backup(Option<BackupRequest>),
}

impl Compacting {
    /// Maximum time that the writer may sleep.
    pub(crate) fn tick(&self, idle: Duration) -> Duration {
        if self.job.is_some() { Duration::from_millis(20) } else { idle }
    }

    /// Stops the copy that is under way.
    pub(crate) fn stop(self) {
        if let Some(job) = self.job {
            job.copier.stop();
        }
    }

    fn put_off(&mut self, size_bytes: u64) {
        self.from_bytes = size_bytes + (size_bytes / 8).max(GROWN_BYTES);
    }
}

impl JournalWriter {
    /// Begins a compaction that is due, and completes one whose copy is ready. After an error
    /// nothing may be committed.
    pub(crate) fn compact(&mut self) -> Result<(), Error> {
        let Some(mut job) = self.compacting.job.take() else {
            self.begin_if_wanted();
            return Ok(());
        };
        match (job.copier.progress(), &mut job.purpose) {
            (CopyProgress::Ended, _) => {
                self.shared.counters.compacting.store(false, Relaxed);
                return Ok(());
            }
            (CopyProgress::Busy, Purpose::Backup(Some(order))) if order.reply.is_closed() => {
                job.copier.mirror.end("nobody waits for it");
            }
            (CopyProgress::Busy, _) => {}
            (CopyProgress::Made(copy), Purpose::Backup(order)) => {
                if let Some(order) = order.take() {
                    self.finish_backup(*copy, &job.copier, order);
                }
            }
            (CopyProgress::Made(copy), Purpose::Compaction { began, before_bytes }) => {
                self.take_over(*copy, &job.copier, *began, *before_bytes)?;
            }
            (CopyProgress::Failed(error), Purpose::Backup(order)) => {
                self.committer.mirror = None;
                order.take().into_iter().for_each(|order| order.answer(Err(error.clone())));
            }
            (CopyProgress::Failed(error), Purpose::Compaction { .. }) => self.give_up(&error),
        }
        self.compacting.job = Some(job);
        Ok(())
    }

    fn begin_if_wanted(&mut self) {
        if let Some((copier, order)) = self.begin_backup() {
            self.begun(copier, Purpose::Backup(Some(order)));
        } else {
            self.begin_if_due();
        }
    }

    fn begun(&mut self, copier: Copier, purpose: Purpose) {
        self.committer.mirror = Some(copier.mirror.clone());
        self.compacting.job = Some(Job { copier, purpose });
    }

    fn begin_if_due(&mut self) {
        let (size, live) = (self.committer.db.log_bytes(), self.committer.live_bytes());
        if size < self.compacting.from_bytes || !compact::due(&self.options, size, live) {
            return;
        }
        match self.begin(live) {
            Ok(copier) => {
                let began = Instant::now();
                self.begun(copier, Purpose::Compaction { began, before_bytes: size });
                self.shared.counters.compacting.store(true, Relaxed);
            }
            Err(error) => self.give_up(&error),
        }
    }

    fn begin(&self, live_bytes: u64) -> Result<Copier, Error> {
        let Options { dir, .. } = &self.options;
        database_copy::room_for(dir, live_bytes)?;
        fsx::remove_tree(&dir.join(OLD_DIR))?;
        Copier::begin(self.committer.db.clone(), dir.join(COPY_DIR), self.options.clone())
    }

    fn give_up(&mut self, error: &Error) {
        self.committer.mirror = None;
        self.compacting.put_off(self.committer.db.log_bytes());
        tracing::warn!(%error, "the journal could not be compacted, it is tried again later");
        self.shared.compaction().given_up = Some(error.to_string());
    }

    fn take_over(
        &mut self,
        mut copy: DatabaseCopy,
        copier: &Copier,
        began: Instant,
        before_bytes: u64,
    ) -> Result<(), Error> {
        let blocked = Instant::now();
        let dir = self.options.dir.clone();
        let committer = &mut self.committer;
        let mirror = committer.mirror.take().unwrap_or_default();
        let finished = database::guarded(|| copy.finish(&committer.db, &mirror, committer.last()));
        let switched = match finished {
            Ok(()) => compact::switch(&dir),
            Err(error) => {
                self.discard(copy, copier, &error);
                return Ok(());
            }
        };
        if let Err(error) = switched {
            if !compact::switch_back(&dir)? {
                return Err(error);
            }
            self.discard(copy, copier, &error);
            return Ok(());
        }
        let db = Arc::new(copy.into_database());
        let after_bytes = db.log_bytes();
        let old = committer.exchange(db.clone());
        let readers = self.shared.exchange(db);
        self.reserve.follow(&dir.join(JOURNAL_DIR))?;
        self.compacting.put_off(after_bytes);
        copier.leave(move || {
            drop((old, readers));
            // Crash point only; an injected error has no effect.
            let _ = crash::point("store::compact::cleared");
            copier::remove(&dir.join(OLD_DIR));
        });
        let compacted = Compacted {
            at: Utc::now(),
            before_bytes,
            after_bytes,
            took_ms: millis(began.elapsed()),
            held_ms: millis(blocked.elapsed()),
        };
        tracing::info!(?compacted, "journal compacted");
        self.shared.compaction().done(compacted);
        Ok(())
    }

    /// Leaves it to the copier to close an unwanted copy.
    fn discard(&mut self, copy: DatabaseCopy, copier: &Copier, error: &Error) {
        self.give_up(error);
        let dir = self.options.dir.join(COPY_DIR);
        copier.leave(move || {
            drop(copy);
            copier::remove(&dir);
        });
    }
}

pub(crate) fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
