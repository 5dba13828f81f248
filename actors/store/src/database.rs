//! Database lifecycle: opening, closing, and checking what recovery returned.
//!
//! sled 0.34.7 writes a snapshot of its page table when it opens: to `snap.LSN.generating`, which it syncs and
//! renames. On the next open it reads the last by name of all files that begin with `snap.`,
//! including that one, and calls the database corrupt if it is not whole (`get_snapshot_files` in
//! `config.rs` excludes another suffix than the one that `pagecache/snapshot.rs` uses). So snapshots that a
//! crash cut short are removed first; without them the previous snapshot is read, or the log from its beginning.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::commit::{Commit, Tally};
use crate::error::IoContext;
use crate::{Error, Options, values};

/// Runs work that may panic on damaged files; a panic becomes an error.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::unreadable(format!("the database panicked: {}", panic_text(&*panic))))
    })
}

/// Text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Name of the log, the one file in a database's directory that grows.
pub(crate) const LOG: &str = "db";
/// Maximum time for a database's readers to end, and for its own threads to release its files.
pub(crate) const CLOSING: Duration = Duration::from_secs(10);

/// Open database. Dropping it closes it and frees its files.
pub(crate) struct Database {
    /// Present until dropped.
    db: Option<sled::Db>,
    log: File,
}

impl Database {
    /// Makes the log durable, including its length; the database's own flush does not.
    pub(crate) fn sync_log(&self) -> Result<(), Error> {
        self.log.sync_data().doing("syncing the database")
    }

    /// Length of the log; the database's other files are small.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |meta| meta.len())
    }
}

impl Deref for Database {
    type Target = sled::Db;

    fn deref(&self) -> &sled::Db {
        self.db.as_ref().expect("only dropping takes it")
    }
}

impl Drop for Database {
    /// Waits for the database's files to be free. The database writes on threads that it shares
    /// with all others of this process; they keep its log open, with the lock on it, for a moment
    /// after a write was waited for, and opening it in that moment fails.
    fn drop(&mut self) {
        // A database that failed may panic once more while closing.
        if catch_unwind(AssertUnwindSafe(|| drop(self.db.take()))).is_err() {
            tracing::error!("the database panicked while closing");
        }
        let until = Instant::now() + CLOSING;
        while let Err(TryLockError::WouldBlock) = self.log.try_lock() {
            if Instant::now() > until {
                tracing::error!("a closed database still holds its files");
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // Closing the file does the same, unless a child that is just being started has a copy of it.
        let _ = self.log.unlock();
    }
}

/// Opens or creates the database. Only commits flush it.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Database, Error> {
    open_with(path, options.cache_mb)
}

/// Opens or creates the database with this much page cache.
pub(crate) fn open_with(path: &Path, cache_mb: u64) -> Result<Database, Error> {
    remove_torn(path)?;
    guarded(|| {
        let db = sled::Config::new()
            .path(path)
            .cache_capacity(cache_mb * 1024 * 1024)
            .flush_every_ms(None)
            .open()
            .doing("opening the database")?;
        let log = File::open(path.join(LOG)).doing("opening the database's log")?;
        Ok(Database { db: Some(db), log })
    })
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckResult {
    pub(crate) commit: Commit,
    pub(crate) schema: u32,
    pub(crate) live_bytes: u64,
}

/// Checks that a database belongs to this store and is complete in itself.
pub(crate) fn check(db: &sled::Db, store_id: Uuid) -> Result<CheckResult, Error> {
    guarded(|| {
        let found = db.get(values::STORE_KEY).doing("reading the database")?;
        let Some(found) = found else {
            return Err(Error::unreadable("the database is empty or of another program"));
        };
        if found.as_ref() != store_id.as_bytes() {
            return Err(Error::unreadable(format!(
                "the database is not of store {store_id}, it says {}",
                found.escape_ascii()
            )));
        }
        let commit = Commit::read(db)?;
        let (tally, live_bytes) = Tally::of(db)?;
        if tally != commit.tally {
            return Err(Error::unreadable(format!(
                "the database lost or changed records: commit {} has {} pairs, {} came back{}",
                commit.number,
                commit.tally.pairs,
                tally.pairs,
                if tally.pairs == commit.tally.pairs { " with another sum" } else { "" },
            )));
        }
        Ok(CheckResult { commit, schema: schema(db)?, live_bytes })
    })
}

fn schema(db: &sled::Db) -> Result<u32, Error> {
    db.get(values::SCHEMA_KEY)
        .doing("reading the database")?
        .and_then(|bytes| bytes.as_ref().try_into().ok())
        .map(u32::from_be_bytes)
        .ok_or_else(|| Error::unreadable("the database holds no schema number"))
}

/// Maximum number of commits that the database may be ahead of `HEAD`: one whose slot did not reach
/// the disk, and one more when the newest slot of `HEAD` is torn.
const AHEAD_MAX: u64 = 2;

/// Compares the database with `HEAD`. A database behind it has lost acknowledged commits.
pub(crate) fn compare(head: Commit, database: Commit) -> Result<(), Error> {
    let (head_at, at) = (head.number, database.number);
    if at < head_at {
        return Err(Error::unreadable(format!(
            "the database ends at commit {at}, commits up to {head_at} were acknowledged"
        )));
    }
    if at > head_at + AHEAD_MAX {
        return Err(Error::unreadable(format!(
            "HEAD is at commit {head_at}, the database at {at}: HEAD is an old copy"
        )));
    }
    if at == head_at && database != head {
        return Err(Error::unreadable(format!("HEAD and the database differ on commit {at}")));
    }
    Ok(())
}

const BEGINS: &str = "snap.";
const ENDS: &str = ".generating";
/// Length of the trailer behind the content: eight bytes of length and four of checksum.
const TRAILER_BYTES: usize = 12;

/// Removes torn snapshots from the folder of a database that is not open.
fn remove_torn(folder: &Path) -> Result<(), Error> {
    let doing = "looking at the database's snapshots";
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.doing(doing)?,
    };
    for entry in entries {
        let entry = entry.doing(doing)?;
        let name = entry.file_name();
        let unfinished =
            name.to_str().is_some_and(|name| name.starts_with(BEGINS) && name.ends_with(ENDS));
        if unfinished && !is_whole(&fs::read(entry.path()).doing(doing)?) {
            tracing::info!(file = %entry.path().display(), "a snapshot was cut short");
            fs::remove_file(entry.path()).doing("removing a snapshot that was cut short")?;
        }
    }
    Ok(())
}

fn is_whole(snapshot: &[u8]) -> bool {
    let Some(at) = snapshot.len().checked_sub(TRAILER_BYTES).filter(|at| *at > 0) else {
        return false;
    };
    let (content, trailer) = snapshot.split_at(at);
    crc32fast::hash(content).to_le_bytes() == trailer[8..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn a_database_is_at_most_two_commits_ahead_of_its_head_and_never_behind() {
        let commit = |number, sum| Commit { number, tally: Tally { pairs: 1, sum } };
        let compare = |head, at| compare(commit(head, 1), commit(at, 1)).is_ok();
        assert!(
            !compare(5, 4) && compare(5, 5) && compare(5, 6) && compare(5, 7) && !compare(5, 8)
        );
        assert!(super::compare(commit(5, 1), commit(5, 2)).is_err(), "one number, two contents");
        assert!(super::compare(commit(5, 1), commit(6, 2)).is_ok());
    }

    #[test]
    fn a_panic_of_the_database_is_an_error_with_its_words() {
        let said = |work: fn() -> u8| guarded(|| Ok(work())).unwrap_err().to_string();
        assert!(said(|| panic!("plain words")).contains("the database panicked: plain words"));
        assert!(
            said(|| panic!("{} words", std::hint::black_box(2)))
                .contains("the database panicked: 2 words")
        );
        assert!(said(|| std::panic::panic_any(3)).contains("the database panicked: no message"));
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
    }

    #[test]
    fn a_database_opens_whatever_a_crash_left_of_its_next_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let (path, options) = (folder.path().join("db"), Options::default());
        let open = || super::open(&path, &options);
        let db = open().unwrap();
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        drop(db);
        drop(open().unwrap());
        let snapshots = || fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path());
        let whole = snapshots().find(|path| path.to_string_lossy().contains("snap.")).unwrap();
        let content = fs::read(&whole).unwrap();
        assert!(is_whole(&content));
        let next = path.join("snap.00000000FFFFFFFF.generating");
        for torn in [0, 5, TRAILER_BYTES, content.len() / 2, content.len() - 1] {
            fs::write(&next, &content[..torn]).unwrap();
            let db = open().unwrap_or_else(|error| panic!("{torn} bytes of it: {error}"));
            assert_eq!(db.get("key").unwrap().unwrap(), "value");
            assert!(!next.exists());
        }
        // The previous snapshot is gone and the new one did not get its name: it is the only one,
        // and whole.
        let last = snapshots().find(|path| path.to_string_lossy().contains("snap.")).unwrap();
        fs::rename(
            &last,
            last.with_extension(format!("{}{ENDS}", last.extension().unwrap().to_str().unwrap())),
        )
        .unwrap();
        assert_eq!(open().unwrap().get("key").unwrap().unwrap(), "value");
    }
}
