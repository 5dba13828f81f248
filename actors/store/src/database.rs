//! Database lifecycle: opening, closing, and checking what recovery returned.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::commit::Commit;
use crate::error::IoContext;
use crate::keys;
use crate::tally::Tally;
use crate::torn;
use crate::{Error, Options};

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
    torn::remove(path)?;
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
        let found = db.get(keys::STORE_KEY).doing("reading the database")?;
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
    db.get(keys::SCHEMA_KEY)
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
