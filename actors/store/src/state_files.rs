//! Files of a state directory beside the database: `STORE` says which store it is, `HEAD` names the last
//! acknowledged commit, or the one before it, and `LOCK` keeps it to one process at a time.
//!
//! `STORE` is written once, when the store is created, and never again. The same id is in the
//! database and in `HEAD`: a database that was emptied, exchanged or mixed from two backups does
//! not pass for the right one.
//!
//! The database recovers the longest prefix of its log that reads well. When the tail of a file is
//! gone, that prefix is consistent and too short, and nothing inside the database can tell. `HEAD`
//! can: it holds number and tally of the last commit, in two alternating slots, each with a
//! checksum. A commit is acknowledged when its slot is written, which a crash of this program
//! survives, and the slot is synced before the next commit begins.
//!
//! After a power cut `HEAD` may thus be one commit behind the database's log, which was synced
//! before: that looks like a commit that was never acknowledged, and such a commit is kept. One
//! loss goes unnoticed: the very last commit, if the disk lost what it had reported as written and
//! power failed before the disk had `HEAD`, a moment later.
//!
//! `HEAD` has a fixed size, so `fdatasync` writes one block and no metadata. The slots lie in
//! different blocks: a torn block cannot damage both.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::commit::Commit;
use crate::error::IoContext;
use crate::{Error, fsx};

const STORE_FILE: &str = "STORE";
/// Version of the directory's layout.
const FORMAT: u32 = 1;

/// Contents of `STORE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreIdentity {
    pub(crate) format: u32,
    pub(crate) store_id: Uuid,
    pub(crate) created: DateTime<Utc>,
}

impl StoreIdentity {
    pub(crate) fn fresh() -> Self {
        StoreIdentity { format: FORMAT, store_id: Uuid::new_v4(), created: Utc::now() }
    }

    /// Reads `STORE`; `None` when there is none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let bytes = match fs::read(dir.join(STORE_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading STORE", &error)),
        };
        let identity: StoreIdentity = serde_json::from_slice(&bytes)
            .map_err(|error| Error::unreadable(format!("STORE is damaged: {error}")))?;
        if identity.format > FORMAT {
            return Err(Error::TooNew { found: identity.format, known: FORMAT });
        }
        Ok(Some(identity))
    }

    /// Writes `STORE` for the first and only time.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let bytes = serde_json::to_vec_pretty(self).expect("three plain fields serialize");
        fsx::write_atomic(dir, STORE_FILE, &bytes)
    }
}

pub(crate) const HEAD_FILE: &str = "HEAD";
const SLOT_STRIDE: u64 = 4096;
const SLOT_BYTES: usize = 56;
const MAGIC: [u8; 4] = *b"HKH1";

/// Open `HEAD` file.
#[derive(Debug)]
pub(crate) struct HeadFile {
    file: File,
    store_id: Uuid,
}

impl HeadFile {
    /// Creates the file with both slots holding `commit`.
    pub(crate) fn create(dir: &Path, store_id: Uuid, commit: &Commit) -> Result<Self, Error> {
        let mut bytes = vec![0; 2 * SLOT_STRIDE as usize];
        for at in [0, SLOT_STRIDE as usize] {
            bytes[at..at + SLOT_BYTES].copy_from_slice(&encode(store_id, commit));
        }
        fsx::write_atomic(dir, HEAD_FILE, &bytes)?;
        Ok(Self::open(dir, store_id)?.0)
    }

    /// Opens the file and reads the newest good slot.
    pub(crate) fn open(dir: &Path, store_id: Uuid) -> Result<(Self, Commit), Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(dir.join(HEAD_FILE))
            .doing("opening HEAD")?;
        let mut newest: Option<Commit> = None;
        for at in [0, SLOT_STRIDE] {
            let mut slot = [0; SLOT_BYTES];
            if file.read_exact_at(&mut slot, at).is_err() {
                continue;
            }
            let Some((id, commit)) = decode(&slot) else { continue };
            if id != store_id {
                return Err(Error::unreadable(format!("HEAD is of store {id}, not {store_id}")));
            }
            if newest.is_none_or(|newest| newest.number < commit.number) {
                newest = Some(commit);
            }
        }
        let newest = newest.ok_or_else(|| Error::unreadable("neither slot of HEAD is readable"))?;
        Ok((HeadFile { file, store_id }, newest))
    }

    /// Writes `commit`; must be synced before the next one, which uses the other slot.
    pub(crate) fn write(&self, commit: &Commit) -> Result<(), Error> {
        let at = commit.number % 2 * SLOT_STRIDE;
        self.file.write_all_at(&encode(self.store_id, commit), at).doing("writing HEAD")
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().doing("syncing HEAD")
    }
}

fn encode(store_id: Uuid, commit: &Commit) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(&MAGIC);
    slot[4..20].copy_from_slice(store_id.as_bytes());
    slot[20..52].copy_from_slice(&commit.to_bytes());
    let crc = crc32fast::hash(&slot[..52]);
    slot[52..].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(Uuid, Commit)> {
    let (body, crc) = slot.split_last_chunk::<4>()?;
    let good = body.starts_with(&MAGIC) && crc32fast::hash(body) == u32::from_le_bytes(*crc);
    let store_id = Uuid::from_slice(&body[4..20]).ok()?;
    let commit = Commit::from_bytes(body[20..52].try_into().ok()?);
    good.then_some((store_id, commit))
}

/// Lock on the state directory. Taken before anything is read: the database's own lock comes too
/// late for the check at start-up.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    /// Unlocks explicitly: a child process that is just being started has the file open too, and
    /// with it the lock, until it executes its own program.
    fn drop(&mut self) {
        // Closing the file does the same unless there is such a child.
        let _ = self.file.unlock();
    }
}

impl DirLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join("LOCK"))
            .doing("opening the lock file")?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { file }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.into() }),
            Err(TryLockError::Error(error)) => Err(Error::io("taking the lock", &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Tally;

    fn commit(number: u64) -> Commit {
        Commit { number, tally: Tally { pairs: number * 2, sum: u128::MAX - u128::from(number) } }
    }

    #[test]
    fn the_newest_good_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let id = Uuid::new_v4();
        let head = HeadFile::create(dir.path(), id, &commit(1)).unwrap();
        head.write(&commit(2)).unwrap();
        head.write(&commit(3)).unwrap();
        assert_eq!(HeadFile::open(dir.path(), id).unwrap().1, commit(3));
        assert!(HeadFile::open(dir.path(), Uuid::new_v4()).is_err());

        head.file.write_all_at(&[0xff], SLOT_STRIDE + 30).unwrap();
        assert_eq!(HeadFile::open(dir.path(), id).unwrap().1, commit(2));
        head.file.write_all_at(&[0xff], 30).unwrap();
        assert!(matches!(HeadFile::open(dir.path(), id), Err(Error::Unreadable { .. })));
    }
}
