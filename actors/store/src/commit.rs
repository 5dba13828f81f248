//! What durable means: one batch, flushed, synced, named in `HEAD`.
//!
//! The database's own flush ends in `sync_file_range`, which neither empties
//! the disk's write cache nor makes the file's new length durable. So a commit
//! also calls `fdatasync` on the log file, and only then writes `HEAD`. That `HEAD` is on the disk
//! makes nothing durable: it is synced when the callers have their answer, and before the next
//! commit begins. See `head.rs`.

use std::fs::File;
use std::path::Path;

use sled::Batch;

use crate::changes::{Change, Changes};
use crate::error::Doing;
use crate::head::Head;
use crate::keys;
use crate::tally::Tally;
use crate::{Error, crash, fsx};

/// A commit's number, counted from 1, and the tally after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) number: u64,
    pub(crate) tally: Tally,
}

impl Commit {
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tally.pairs.to_le_bytes());
        bytes[16..].copy_from_slice(&self.tally.sum.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        let number = |at: usize| {
            bytes[at..at + 8].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        let sum = u128::from(number(24)) << 64 | u128::from(number(16));
        Commit { number: number(0), tally: Tally { pairs: number(8), sum } }
    }

    /// The commit the database says it is at.
    pub(crate) fn read(db: &sled::Db) -> Result<Self, Error> {
        let stored = db.get(keys::COMMIT_KEY).doing("reading the database")?;
        stored
            .and_then(|bytes| bytes.as_ref().try_into().ok())
            .map(Commit::from_bytes)
            .ok_or_else(|| Error::unreadable("the database holds no commit number"))
    }
}

/// The only way to write to the database.
pub(crate) struct Committer {
    pub(crate) db: sled::Db,
    log_file: File,
    head: Head,
    last: Commit,
}

impl Committer {
    /// Takes over a checked database that is at `last`.
    pub(crate) fn new(db: sled::Db, path: &Path, head: Head, last: Commit) -> Result<Self, Error> {
        let log_file = File::open(path.join("db")).doing("opening the database's log")?;
        Ok(Committer { db, log_file, head, last })
    }

    /// Brings `HEAD` up to a commit that reached the database and was never
    /// acknowledged. True when there was one.
    pub(crate) fn catch_up(&self, head: Commit, path: &Path) -> Result<bool, Error> {
        if head == self.last {
            return Ok(false);
        }
        fsx::sync_tree(path)?;
        self.head.write(&self.last)?;
        self.head.sync()?;
        Ok(true)
    }

    /// Makes `changes` durable, all or none, to be [`Self::settle`]d before the next. After an
    /// error the caller must stop: only recovery can tell whether they reached the disk.
    pub(crate) fn commit(&mut self, changes: Changes) -> Result<(), Error> {
        let mut tally = self.last.tally;
        let mut batch = Batch::default();
        for (key, change) in changes.into_pairs() {
            let counts = !key.starts_with(&[keys::META]);
            let old = self.db.get(&key).doing("reading the database")?;
            if counts && let Some(old) = &old {
                if matches!(change, Change::New(_)) {
                    let key = key.escape_ascii();
                    return Err(Error::unreadable(format!(
                        "{key} exists and would be overwritten"
                    )));
                }
                tally.remove(&key, old);
            }
            match change {
                Change::New(value) | Change::Put(value) => {
                    if counts {
                        tally.add(&key, &value);
                    }
                    batch.insert(key, value);
                }
                Change::Delete => batch.remove(key),
            }
        }
        let next = Commit { number: self.last.number + 1, tally };
        batch.insert(keys::COMMIT_KEY, &next.to_bytes());
        crash::point("store::commit::apply")?;
        self.db.apply_batch(batch).doing("writing the batch")?;
        crash::point("store::commit::flush")?;
        self.db.flush().doing("flushing the database")?;
        self.log_file.sync_data().doing("syncing the database")?;
        crash::point("store::commit::head")?;
        self.head.write(&next)?;
        self.last = next;
        Ok(())
    }

    /// Brings `HEAD` onto the disk.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        crash::point("store::commit::settle")?;
        self.head.sync()
    }
}
