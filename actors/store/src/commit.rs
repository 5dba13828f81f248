//! Durable commit: one batch, flushed, synced, named in `HEAD`.
//!
//! The database's own flush ends in `sync_file_range`, which neither empties the disk's write cache
//! nor makes the file's new length durable. So a commit also calls `fdatasync` on the log file, and
//! only then writes `HEAD`. No durability depends on `HEAD` being on the disk: it is synced after
//! the callers have their answer and before the next commit begins. See `head.rs`.

use std::path::Path;
use std::sync::Arc;

use sled::Batch;

use crate::changes::{KeyChange, KeyChanges};
use crate::database::{CheckResult, Database};
use crate::dirty_keys::DirtyKeys;
use crate::error::IoContext;
use crate::head::HeadFile;
use crate::keys::COMMIT_KEY;
use crate::tally::{self, Tally};
use crate::{Error, barrier, crash, fsx};

/// Number of a commit, counted from 1, and the tally after it.
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

    /// Reads the commit that the database says it is at.
    pub(crate) fn read(db: &sled::Db) -> Result<Self, Error> {
        let stored = db.get(COMMIT_KEY).doing("reading the database")?;
        stored
            .and_then(|bytes| bytes.as_ref().try_into().ok())
            .map(Commit::from_bytes)
            .ok_or_else(|| Error::unreadable("the database holds no commit number"))
    }
}

/// Committer: the only way to write to the database.
pub(crate) struct Committer {
    pub(crate) db: Arc<Database>,
    head: HeadFile,
    last: Commit,
    live_bytes: u64,
    /// Dirty set of a copy in the making, which has to follow each commit.
    pub(crate) mirror: Option<Arc<DirtyKeys>>,
}

impl Committer {
    /// Takes over a checked database that is at `last`.
    pub(crate) fn new(db: Database, head: HeadFile, found: &CheckResult) -> Self {
        let CheckResult { commit: last, live_bytes, .. } = *found;
        Committer { db: Arc::new(db), head, last, live_bytes, mirror: None }
    }

    /// Last commit.
    pub(crate) fn last(&self) -> Commit {
        self.last
    }

    /// Switches to another database with the same contents and returns the old one.
    pub(crate) fn exchange(&mut self, db: Arc<Database>) -> Arc<Database> {
        std::mem::replace(&mut self.db, db)
    }

    /// Size of all keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Brings `HEAD` up to a commit that reached the database and was never acknowledged. True if
    /// there was one.
    pub(crate) fn catch_up(&self, head: Commit, path: &Path) -> Result<bool, Error> {
        if head == self.last {
            return Ok(false);
        }
        fsx::sync_tree(path)?;
        self.head.write(&self.last)?;
        self.head.sync()?;
        Ok(true)
    }

    /// Makes `changes` durable, all or none; [`Self::settle`] must follow before the next commit.
    /// After an error the caller must stop: only recovery can tell whether the changes reached the
    /// disk.
    pub(crate) fn commit(&mut self, changes: KeyChanges) -> Result<(), Error> {
        let (mut tally, mut live_bytes) = (self.last.tally, self.live_bytes);
        let mut keys = Vec::new();
        let mut batch = Batch::default();
        for (key, change) in changes.into_pairs() {
            let old = self.db.get(&key).doing("reading the database")?;
            if let Some(old) = &old {
                if tally::counts(&key) && matches!(change, KeyChange::New(_)) {
                    let key = key.escape_ascii();
                    return Err(Error::unreadable(format!(
                        "{key} exists and would be overwritten"
                    )));
                }
                tally.remove(&key, old);
                live_bytes -= (key.len() + old.len()) as u64;
            }
            if self.mirror.is_some() {
                keys.push(key.clone());
            }
            match change {
                KeyChange::New(value) | KeyChange::Put(value) => {
                    tally.add(&key, &value);
                    live_bytes += (key.len() + value.len()) as u64;
                    batch.insert(key, value);
                }
                KeyChange::Delete => batch.remove(key),
            }
        }
        let next = Commit { number: self.last.number + 1, tally };
        batch.insert(COMMIT_KEY, &next.to_bytes());
        crash::point("store::commit::apply")?;
        self.db.apply_batch(batch).doing("writing the batch")?;
        if let Some(mirror) = &self.mirror {
            keys.push(COMMIT_KEY.to_vec());
            mirror.note(keys);
        }
        crash::point("store::commit::flush")?;
        self.db.flush().doing("flushing the database")?;
        if !barrier::holds() {
            self.db.sync_log()?;
        }
        crash::point("store::commit::head")?;
        self.head.write(&next)?;
        (self.last, self.live_bytes) = (next, live_bytes);
        Ok(())
    }

    /// Syncs `HEAD`.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        crash::point("store::commit::settle")?;
        self.head.sync()
    }
}
