//! Durable commit: one batch, flushed, synced, named in `HEAD`.
//!
//! The database's own flush ends in `sync_file_range`, which neither empties the disk's write cache
//! nor makes the file's new length durable. So a commit also calls `fdatasync` on the log file, and
//! only then writes `HEAD`. No durability depends on `HEAD` being on the disk: it is synced after
//! the callers have their answer and before the next commit begins. See `state_files.rs`.
//!
//! A commit carries a count and a sum over all live pairs, by which a loss is noticed. The sum adds a 128-bit
//! hash per pair, so it does not depend on order, and a commit updates it from the pairs it touches. At
//! start-up it is computed again from what the database returns: a pair lost, changed, added, or brought back
//! from the past makes a difference. It guards against damage, not against a forger.
//!
//! The write barrier interposes a function of the C library, so that what the database takes for a sync is one.
//! sled reuses a segment of its log once newer copies of the segment's pages were written and
//! `sync_file_range` was called for them. That call does not empty a disk's write cache: a power
//! cut could keep the new pages and lose the copies, which were acknowledged long ago. Nothing
//! above sled can put a sync in between, so this function answers the call with `fdatasync`. The
//! linker prefers it to that of the C library.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{c_int, c_uint, off64_t};
use sled::Batch;

use crate::database::{CheckResult, Database};
use crate::database_copy::DirtyKeys;
use crate::error::IoContext;
use crate::pending_commit::{KeyChange, KeyChanges};
use crate::state_files::HeadFile;
use crate::values::{self, COMMIT_KEY};
use crate::{Error, fsx};

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
                if counts(&key) && matches!(change, KeyChange::New(_)) {
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
        fsx::crash_point("store::commit::apply")?;
        self.db.apply_batch(batch).doing("writing the batch")?;
        if let Some(mirror) = &self.mirror {
            keys.push(COMMIT_KEY.to_vec());
            mirror.note(keys);
        }
        fsx::crash_point("store::commit::flush")?;
        self.db.flush().doing("flushing the database")?;
        if !barrier_holds() {
            self.db.sync_log()?;
        }
        fsx::crash_point("store::commit::head")?;
        self.head.write(&next)?;
        (self.last, self.live_bytes) = (next, live_bytes);
        Ok(())
    }

    /// Syncs `HEAD`.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        fsx::crash_point("store::commit::settle")?;
        self.head.sync()
    }
}

/// Count and sum. Keys that start with `m` are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) sum: u128,
}

impl Tally {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if !counts(key) {
            return;
        }
        self.pairs += 1;
        self.sum = self.sum.wrapping_add(hash(key, value));
    }

    pub(crate) fn remove(&mut self, key: &[u8], value: &[u8]) {
        if !counts(key) {
            return;
        }
        self.pairs -= 1;
        self.sum = self.sum.wrapping_sub(hash(key, value));
    }

    /// Walks the whole database. Also returns the bytes of keys and values.
    pub(crate) fn of(db: &sled::Db) -> Result<(Tally, u64), Error> {
        let mut tally = Tally::default();
        let mut live_bytes = 0;
        for pair in db.iter() {
            let (key, value) = pair.doing("reading the database")?;
            live_bytes += (key.len() + value.len()) as u64;
            tally.add(&key, &value);
        }
        Ok((tally, live_bytes))
    }
}

/// True if a pair is part of the tally.
pub(crate) fn counts(key: &[u8]) -> bool {
    !key.starts_with(&[values::META])
}

fn hash(key: &[u8], value: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    let hash = hasher.finalize();
    let low = hash.as_bytes().first_chunk::<16>().expect("a blake3 hash has 32 bytes");
    u128::from_le_bytes(*low)
}

static CALLED: AtomicBool = AtomicBool::new(false);

/// True once the database was seen to call the function: its own flush is then a sync and needs no
/// other.
fn barrier_holds() -> bool {
    CALLED.load(Relaxed)
}

/// Makes all of a file durable, including its length, whatever part was asked for.
///
/// # Safety
/// No precondition: a bad descriptor is an error.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(fd: c_int, _from: off64_t, _bytes: off64_t, _how: c_uint) -> c_int {
    CALLED.store(true, Relaxed);
    // SAFETY: takes no pointer.
    unsafe { libc::fdatasync(fd) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_commit_reads_back_from_its_bytes(number: u64, pairs: u64, sum: u128) {
            let commit = Commit { number, tally: Tally { pairs, sum } };
            prop_assert_eq!(Commit::from_bytes(commit.to_bytes()), commit);
        }

        /// A tally is one of the pairs that are there: whatever came and went, and in whichever order.
        #[test]
        fn a_tally_is_of_the_pairs_alone(
            kept in prop::collection::btree_map("[a-lr]{1,3}", ".{0,3}", 0..6),
            gone in prop::collection::btree_map("[a-lr]{1,3}", ".{0,3}", 0..6),
        ) {
            let tally = |pairs: &mut dyn Iterator<Item = (&String, &String)>| {
                let mut tally = Tally::default();
                pairs.for_each(|(key, value)| tally.add(key.as_bytes(), value.as_bytes()));
                tally
            };
            let wanted = tally(&mut kept.iter());
            prop_assert_eq!(wanted.pairs, kept.len() as u64);
            let mut other = tally(&mut gone.iter().chain(kept.iter().rev()));
            for (key, value) in &gone {
                prop_assert_ne!(other, wanted);
                other.remove(key.as_bytes(), value.as_bytes());
            }
            prop_assert_eq!(other, wanted);
        }
    }

    #[test]
    fn what_is_about_the_database_itself_does_not_count() {
        let mut tally = Tally::default();
        tally.add(COMMIT_KEY, b"value");
        tally.remove(values::STORE_KEY, b"value");
        assert_eq!(tally, Tally::default());
        // Where the key ends and its value begins makes a difference.
        assert_ne!(hash(b"ra", b"b"), hash(b"r", b"ab"));
    }

    #[test]
    fn the_database_calls_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = sled::open(dir.path()).unwrap();
        CALLED.store(false, Relaxed);
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        assert!(barrier_holds(), "its flush is answered by the C library");
    }
}
