//! Opening the database, and checking what came back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use uuid::Uuid;

use crate::commit::Commit;
use crate::error::Doing;
use crate::keys;
use crate::tally::Tally;
use crate::{Error, Options};

/// Runs something that may panic on damaged files.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::unreadable(format!("the database panicked: {}", panic_text(&*panic))))
    })
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Opens or creates the database. It is flushed by commits alone.
pub(crate) fn open(path: &Path, options: &Options) -> Result<sled::Db, Error> {
    guarded(|| {
        sled::Config::new()
            .path(path)
            .cache_capacity(options.cache_mb * 1024 * 1024)
            .flush_every_ms(None)
            .open()
            .doing("opening the database")
    })
}

/// What a database turned out to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) commit: Commit,
    pub(crate) schema: u32,
    pub(crate) live_bytes: u64,
}

/// Checks that a database is this store's and whole in itself.
pub(crate) fn check(db: &sled::Db, store_id: Uuid) -> Result<Checked, Error> {
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
        Ok(Checked { commit, schema: schema(db)?, live_bytes })
    })
}

fn schema(db: &sled::Db) -> Result<u32, Error> {
    db.get(keys::SCHEMA_KEY)
        .doing("reading the database")?
        .and_then(|bytes| bytes.as_ref().try_into().ok())
        .map(u32::from_be_bytes)
        .ok_or_else(|| Error::unreadable("the database holds no schema number"))
}

/// How many commits the database may be ahead of `HEAD`: one whose slot did not
/// reach the disk, and one more when the newest slot of `HEAD` is torn.
const AHEAD_MAX: u64 = 2;

/// Compares the database with `HEAD`. Behind it, acknowledged commits are gone.
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
