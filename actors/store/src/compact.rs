//! Compaction by copying: the database never gives space back, so a copy of its live pairs replaces
//! it.
//!
//! ```text
//! journal                          1. copy the live pairs to journal.compact (database_copy.rs)
//! journal  journal.compact         2. bring the copy to the last commit, sync it
//! journal.old  journal.compact     3. rename journal away
//! journal.old  journal             4. rename the copy into its place
//! journal                          5. remove journal.old
//! ```
//!
//! [`settle`] finishes or undoes a step that a crash cut short: without `journal`, `journal.old` is
//! put back; otherwise leftovers are removed. The copy keeps the commit number and the tally, so
//! `HEAD` is valid for both. For the same reason nothing may be committed from step 2 to step 4.
//!
//! At start-up all steps are done before the journal opens; in a running journal, `copier.rs` does
//! steps 1 and 5 on a thread and the writer those between, between two commits. Commits wait for three
//! things: the last few keys of the copy, their sync, and two renames. A failure before the renames costs only
//! the copy; compaction is tried again once the database has grown some more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::copier::{self, BackupRequest, Copier, CopyProgress};
use crate::database::{self, CheckResult};
use crate::database_copy::{self, DatabaseCopy, DirtyKeys};
use crate::open::JOURNAL_DIR;
use crate::writer::JournalWriter;
use crate::{Error, Options, fsx};

pub(crate) const COPY_DIR: &str = "journal.compact";
pub(crate) const OLD_DIR: &str = "journal.old";
/// Minimum size of a database, however little it holds.
const EMPTY_BYTES: u64 = 2 * 1024 * 1024;

/// Result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// Time of its end.
    pub at: DateTime<Utc>,
    /// Size of the database before, in bytes.
    pub before_bytes: u64,
    /// Size of the database after, in bytes.
    pub after_bytes: u64,
    /// Duration of the compaction.
    pub took_ms: u64,
    /// Time that commits waited for the compaction.
    pub held_ms: u64,
}

/// Undoes or finishes an interrupted compaction.
pub(crate) fn settle(dir: &Path) -> Result<(), Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    if old.exists() && !journal.exists() {
        fsx::rename(&old, &journal)?;
    }
    fsx::remove_tree(&old)?;
    fsx::remove_tree(&dir.join(COPY_DIR))
}

/// True if compaction is worth it at start-up, where it delays no commit.
pub(crate) fn due_at_start(options: &Options, disk_bytes: u64, live_bytes: u64) -> bool {
    disk_bytes > options.compact_at_mb * 1024 * 1024 && live_bytes < disk_bytes / 4
}

/// True if compaction is worth it while the journal runs.
pub(crate) fn due(options: &Options, disk_bytes: u64, live_bytes: u64) -> bool {
    disk_bytes > 2 * live_bytes + options.compact_at_mb * 1024 * 1024 + EMPTY_BYTES
}

/// Replaces the database by a copy of its live pairs. The database must be closed and have passed
/// its check with the result `checked`.
pub(crate) fn run(options: &Options, checked: &CheckResult) -> Result<(), Error> {
    let dir = &options.dir;
    database::guarded(|| {
        let source = database::open(&dir.join(JOURNAL_DIR), options)?;
        let nothing = DirtyKeys::default();
        let mut copy = database_copy::copy(&source, &nothing, &dir.join(COPY_DIR), options)?;
        copy.finish(&source, &nothing, checked.commit)
    })?;
    switch(dir)?;
    fsx::remove_tree(&dir.join(OLD_DIR))
}

/// Renames the copy into the database's place.
fn switch(dir: &Path) -> Result<(), Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    fsx::rename(&journal, &old)?;
    fsx::crash_point("store::compact::moved")?;
    fsx::rename(&dir.join(COPY_DIR), &journal)?;
    fsx::crash_point("store::compact::swapped")
}

/// Undoes a [`switch`] that failed. False when the copy is already in its place: then nobody knows
/// which of the two a power cut would leave there, and nothing may be committed.
fn switch_back(dir: &Path) -> Result<bool, Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    match (old.exists(), journal.exists()) {
        (true, true) => Ok(false),
        (true, false) => fsx::rename(&old, &journal).map(|()| true),
        (false, _) => fsx::sync_dir(dir).map(|()| true),
    }
}

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
        if size < self.compacting.from_bytes || !due(&self.options, size, live) {
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
            Ok(()) => switch(&dir),
            Err(error) => {
                self.discard(copy, copier, &error);
                return Ok(());
            }
        };
        if let Err(error) = switched {
            if !switch_back(&dir)? {
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
            let _ = fsx::crash_point("store::compact::cleared");
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

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_journal_is_compacted_when_most_of_it_is_dead() {
        let options = Options { compact_at_mb: 8, ..Options::default() };
        let at_start = |disk, live| due_at_start(&options, disk, live);
        assert!(at_start(8 * MB + 4, 2 * MB) && !at_start(8 * MB, 0));
        assert!(!at_start(8 * MB + 4, 2 * MB + 1), "a quarter of it lives");
        let running = |disk, live| due(&options, disk, live);
        assert!(running(10 * MB + 1, 0) && !running(10 * MB, 0));
        assert!(
            running(16 * MB + 1, 3 * MB) && !running(16 * MB, 3 * MB),
            "twice what lives, and both bounds"
        );
    }

    #[test]
    fn a_try_that_failed_waits_until_the_database_has_grown() {
        let mut compacting = Compacting::default();
        for (size, from) in [(8 * MB, 12 * MB), (32 * MB, 36 * MB), (80 * MB, 90 * MB)] {
            compacting.put_off(size);
            assert_eq!(compacting.from_bytes, from);
        }
        assert_eq!(compacting.tick(Duration::from_secs(1)), Duration::from_secs(1), "nothing runs");
        assert_eq!(millis(Duration::from_micros(2_900)), 2);
    }
}
