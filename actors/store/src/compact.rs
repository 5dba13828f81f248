//! Start-up compaction: the database never gives space back, a copy does.
//!
//! ```text
//! journal                          1. copy the live pairs to journal.compact
//! journal  journal.compact         2. close, reopen, check the copy
//! journal.old  journal.compact     3. rename journal away
//! journal.old  journal             4. rename the copy into its place
//! journal                          5. remove journal.old
//! ```
//!
//! [`settle`] finishes or undoes a step that a crash cut: without `journal`,
//! `journal.old` is put back; otherwise what is left over is removed. The copy
//! keeps the commit number and the tally, so `HEAD` holds for both.

use std::path::Path;

use uuid::Uuid;

use crate::database::{self, Checked};
use crate::error::Doing;
use crate::open::JOURNAL_DIR;
use crate::{Error, Options, crash, fsx};

const COPY_DIR: &str = "journal.compact";
const OLD_DIR: &str = "journal.old";
/// Pairs per batch of the copy.
const BATCH_PAIRS: usize = 1000;

/// Undoes or finishes an interrupted compaction.
pub(crate) fn settle(dir: &Path) -> Result<(), Error> {
    let (journal, old) = (dir.join(JOURNAL_DIR), dir.join(OLD_DIR));
    if old.exists() && !journal.exists() {
        fsx::rename(&old, &journal)?;
    }
    fsx::remove_tree(&old)?;
    fsx::remove_tree(&dir.join(COPY_DIR))
}

/// Whether compaction is worth it.
pub(crate) fn due(options: &Options, disk_bytes: u64, live_bytes: u64) -> bool {
    disk_bytes > options.compact_at_mb * 1024 * 1024 && live_bytes < disk_bytes / 4
}

/// Replaces the database by a copy of its live pairs. The database must be
/// closed and have passed its check, with the outcome `checked`.
pub(crate) fn run(options: &Options, store_id: Uuid, checked: &Checked) -> Result<(), Error> {
    let dir = &options.dir;
    let (journal, copy, old) = (dir.join(JOURNAL_DIR), dir.join(COPY_DIR), dir.join(OLD_DIR));
    copy_pairs(&journal, &copy, options)?;
    crash::point("store::compact::built")?;
    let copied = database::open(&copy, options)?;
    let found = database::check(&copied, store_id)?;
    drop(copied);
    if found != *checked {
        return Err(Error::unreadable("the compacted copy differs from the original"));
    }
    fsx::sync_tree(&copy)?;
    crash::point("store::compact::verified")?;
    fsx::rename(&journal, &old)?;
    crash::point("store::compact::moved")?;
    fsx::rename(&copy, &journal)?;
    crash::point("store::compact::swapped")?;
    fsx::remove_tree(&old)
}

fn copy_pairs(from: &Path, to: &Path, options: &Options) -> Result<(), Error> {
    database::guarded(|| {
        let source = database::open(from, options)?;
        let target = database::open(to, options)?;
        let mut batch = sled::Batch::default();
        for (count, pair) in source.iter().enumerate() {
            let (key, value) = pair.doing("reading the database")?;
            batch.insert(key, value);
            if count % BATCH_PAIRS == BATCH_PAIRS - 1 {
                target.apply_batch(std::mem::take(&mut batch)).doing("writing the copy")?;
            }
        }
        target.apply_batch(batch).doing("writing the copy")?;
        target.flush().doing("flushing the copy")?;
        Ok(())
    })
}
