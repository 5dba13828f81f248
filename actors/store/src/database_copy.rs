//! Online copy of the database: fuzzy at first, then brought up to one commit.
//!
//! ```text
//! all pairs, in steps        what commits change meanwhile follows (DirtyKeys)
//! close, reopen, read back   proves that the copy recovers and holds what was written
//! catch up                   until little is left
//! finish, between commits    the last few keys; count and sum must be those of the commit
//! ```
//!
//! The database offers no consistent view of itself: a scan during commits sees no single moment.
//! So each changed key is read once more, and the copy is valid only when its tally, kept from what
//! was written to it, equals that of the target commit.
//!
//! The writer notes the keys of a commit once the database has it; the thread that makes the copy
//! takes them and reads them again. A key noted after it was read is read once more, so nothing is
//! missed, and the set stays as small as what is committed between two takes.
//!
//! Pairs are inserted one by one: a batch would lock every database of this process, including the
//! one that serves meanwhile. The copy needs no atomic steps, because half a copy is worthless
//! anyway.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::commit::{Commit, Tally};
use crate::database::{self, Database};
use crate::error::IoContext;
use crate::{Error, Options, fsx};

/// Bytes read in one step, which bound the time that others wait for a flush.
const STEP_BYTES: usize = 256 * 1024;
/// Page cache while the copy is made; it is reopened with more once it is to serve.
const CACHE_MB: u64 = 8;
/// Free disk space that a copy leaves to others.
const KEPT_FREE_BYTES: u64 = 16 * 1024 * 1024;
/// Number of keys to go below which the rest is done between two commits.
const FEW_KEYS: usize = 256;
/// Maximum number of rounds to come that close.
const ROUNDS: usize = 64;

/// Copy of a database.
pub(crate) struct DatabaseCopy {
    db: Database,
    /// Tally of what was written to the copy.
    written: Tally,
    read_back: Option<ReadBack>,
}

/// Verification of the copy: read back up to and including `upto`, with this tally.
#[derive(Default)]
struct ReadBack {
    upto: Vec<u8>,
    tally: Tally,
}

/// Copies `source` to the directory `to`, which holds nothing else, while commits continue. Changes
/// left for [`DatabaseCopy::finish`] are in `mirror`.
///
/// # Errors
/// Fails without cleaning up; the caller removes `to`.
pub(crate) fn copy(
    source: &sled::Db,
    mirror: &DirtyKeys,
    to: &Path,
    options: &Options,
) -> Result<DatabaseCopy, Error> {
    fsx::remove_tree(to)?;
    let mut copy = DatabaseCopy {
        db: database::open_with(to, CACHE_MB)?,
        written: Tally::default(),
        read_back: None,
    };
    fsx::crash_point("store::compact::begun")?;
    let mut from = Bound::Unbounded;
    while let Some(last) = copy.step(source, from)? {
        from = Bound::Excluded(last);
        copy.follow(source, mirror, to)?;
    }
    fsx::crash_point("store::compact::built")?;
    copy = copy.reopened(to, CACHE_MB)?;
    copy.read_back = Some(ReadBack::default());
    while copy.read_on()? {
        copy.follow(source, mirror, to)?;
    }
    fsx::crash_point("store::compact::verified")?;
    copy = copy.reopened(to, options.cache_mb)?;
    for _ in 0..ROUNDS {
        if copy.follow(source, mirror, to)? <= FEW_KEYS {
            break;
        }
    }
    fsx::sync_tree(to)?;
    copy.follow(source, mirror, to)?;
    copy.db.sync_log()?;
    fsx::crash_point("store::compact::caught_up")?;
    Ok(copy)
}

/// Refuses a copy that does not fit beside the original.
pub(crate) fn room_for(dir: &Path, live_bytes: u64) -> Result<(), Error> {
    if fsx::free_bytes(dir)? < 2 * live_bytes + KEPT_FREE_BYTES {
        let cause = format!("a copy of {} MiB does not fit", live_bytes >> 20);
        return Err(Error::Full { doing: "copying the database", cause });
    }
    Ok(())
}

impl DatabaseCopy {
    /// Makes the copy equal to `source` at the commit `at`, durably. Nothing may be committed
    /// meanwhile.
    pub(crate) fn finish(
        &mut self,
        source: &sled::Db,
        mirror: &DirtyKeys,
        at: Commit,
    ) -> Result<(), Error> {
        mirror.check()?;
        self.catch_up(source, mirror.take())?;
        if self.written != at.tally || Commit::read(&self.db)? != at {
            return Err(Error::unreadable("the copy differs from the original"));
        }
        fsx::crash_point("store::compact::finish")?;
        self.db.flush().doing("flushing the copy")?;
        self.db.sync_log()
    }

    pub(crate) fn into_database(self) -> Database {
        self.db
    }

    /// Copies the next pairs; returns the last key, `None` at the end.
    fn step(&mut self, source: &sled::Db, from: Bound<Vec<u8>>) -> Result<Option<Vec<u8>>, Error> {
        let (mut bytes, mut last) = (0, None);
        for pair in source.range((from, Bound::Unbounded)) {
            let (key, value) = pair.doing("reading the database")?;
            bytes += key.len() + value.len();
            self.put(&key, Some(value))?;
            last = Some(key);
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(last.map(|key| key.to_vec()))
    }

    /// Applies what was committed meanwhile; returns the number of keys.
    fn follow(&mut self, source: &sled::Db, mirror: &DirtyKeys, to: &Path) -> Result<usize, Error> {
        mirror.check()?;
        if fsx::free_bytes(to)? < KEPT_FREE_BYTES {
            let cause = format!("less than {} MiB would be left", KEPT_FREE_BYTES >> 20);
            return Err(Error::Full { doing: "copying the database", cause });
        }
        let keys = mirror.take();
        let count = keys.len();
        self.catch_up(source, keys)?;
        self.db.flush().doing("flushing the copy")?;
        Ok(count)
    }

    fn catch_up(&mut self, source: &sled::Db, keys: BTreeSet<Vec<u8>>) -> Result<(), Error> {
        for key in keys {
            let value = source.get(&key).doing("reading the database")?;
            self.put(&key, value)?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: Option<sled::IVec>) -> Result<(), Error> {
        let old = match &value {
            Some(value) => self.db.insert(key, value),
            None => self.db.remove(key),
        };
        let old = old.doing("writing the copy")?;
        let seen = self.read_back.as_mut().filter(|seen| *key <= *seen.upto);
        for tally in [Some(&mut self.written), seen.map(|seen| &mut seen.tally)] {
            let Some(tally) = tally else { continue };
            if let Some(old) = &old {
                tally.remove(key, old);
            }
            if let Some(value) = &value {
                tally.add(key, value);
            }
        }
        Ok(())
    }

    /// Closes and reopens the copy, which recovers it.
    fn reopened(self, to: &Path, cache_mb: u64) -> Result<Self, Error> {
        let DatabaseCopy { db, written, .. } = self;
        db.flush().doing("flushing the copy")?;
        drop(db);
        Ok(DatabaseCopy { db: database::open_with(to, cache_mb)?, written, read_back: None })
    }

    /// Reads the next pairs back; false at the end, where the tally must match all that was
    /// written.
    fn read_on(&mut self) -> Result<bool, Error> {
        let Some(seen) = &mut self.read_back else { return Ok(false) };
        let mut bytes = 0;
        for pair in self.db.range::<&[u8], _>((Bound::Excluded(&*seen.upto), Bound::Unbounded)) {
            let (key, value) = pair.doing("reading the copy")?;
            seen.tally.add(&key, &value);
            seen.upto = key.to_vec();
            bytes += key.len() + value.len();
            if bytes >= STEP_BYTES {
                return Ok(true);
            }
        }
        if seen.tally != self.written {
            return Err(Error::unreadable("the copy lost or changed records"));
        }
        Ok(false)
    }
}

/// Maximum number of keys; beyond it the copy is given up, for it is too slow to ever end.
const MOST_KEYS: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct DirtyKeys {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<Vec<u8>>,
    ended: Option<&'static str>,
}

impl DirtyKeys {
    /// Notes the keys that a commit changed.
    pub(crate) fn note(&self, keys: Vec<Vec<u8>>) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.keys.extend(keys);
        if state.keys.len() > MOST_KEYS {
            state.keys = BTreeSet::new();
            state.ended = Some("more keys changed than the copy could follow");
        }
    }

    /// Takes the keys noted since the last call.
    pub(crate) fn take(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.state().keys)
    }

    /// Cancels the copy: nobody wants it any more.
    pub(crate) fn end(&self, why: &'static str) {
        let mut state = self.state();
        state.keys = BTreeSet::new();
        state.ended.get_or_insert(why);
    }

    /// Fails once the copy cannot be completed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.state().ended {
            None => Ok(()),
            Some(why) => Err(Error::invalid(format!("the copy was given up: {why}"))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
