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
//! steps 1 and 5 on a thread and the writer those between.

use std::path::Path;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::database::{self, CheckResult};
use crate::dirty_keys::DirtyKeys;
use crate::open::JOURNAL_DIR;
use crate::{Error, Options, crash, database_copy, fsx};

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
pub(crate) fn switch(dir: &Path) -> Result<(), Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    fsx::rename(&journal, &old)?;
    crash::point("store::compact::moved")?;
    fsx::rename(&dir.join(COPY_DIR), &journal)?;
    crash::point("store::compact::swapped")
}

/// Undoes a [`switch`] that failed. False when the copy is already in its place: then nobody knows
/// which of the two a power cut would leave there, and nothing may be committed.
pub(crate) fn switch_back(dir: &Path) -> Result<bool, Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    match (old.exists(), journal.exists()) {
        (true, true) => Ok(false),
        (true, false) => fsx::rename(&old, &journal).map(|()| true),
        (false, _) => fsx::sync_dir(dir).map(|()| true),
    }
}
