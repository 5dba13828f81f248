//! Quota on the size of the whole vault.
//!
//! The present size is measured by a walk and kept up to date by the daemon's own writes. Other
//! programs write and remove notes too, so a measurement expires soon, and sooner when a note would
//! be refused by it.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::VaultFolder;
use super::walk::{WalkEntryKind, WalkParams};
use crate::Error;
use crate::path::NotePath;
use hivekeep_kernel::lock;

/// Allocation unit: a file or folder takes whole blocks of its disk, so that many small ones count
/// too.
const BLOCK_BYTES: u64 = 4096;
/// Maximum age of a measurement by which a note is refused.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum age of a measurement by which a note is admitted.
const STALE: Duration = Duration::from_secs(600);
/// Items per walk of a measurement.
const PAGE: usize = 10_000;

/// Limit and last measurement.
pub(super) struct Quota {
    most: u64,
    measure: Mutex<Option<Measure>>,
}

struct Measure {
    bytes: u64,
    at: Instant,
}

/// Quota taken by a write. Dropped before the note is in its place, it is given back.
pub(super) struct Taken<'r> {
    quota: &'r Quota,
    grown: u64,
    shrunk: u64,
}

impl Quota {
    pub(super) fn new(most: u64) -> Self {
        Self { most, measure: Mutex::default() }
    }

    /// Takes quota for a note of `new` bytes that replaces one of `old`. Blocks; one writer walks
    /// while the others wait for the result.
    ///
    /// # Errors
    /// [`Error::VaultFull`], or the error of a folder that cannot be read.
    pub(super) fn take(
        &self,
        folder: &VaultFolder,
        old: Option<u64>,
        new: u64,
    ) -> Result<Taken<'_>, Error> {
        let (old, new) = (old.map_or(0, blocks), blocks(new));
        let (grown, shrunk) = (new.saturating_sub(old), old.saturating_sub(new));
        let mut measure = self.measure();
        let fits = |measure: &Measure| measure.bytes + grown <= self.most;
        let believed = |measure: &&mut Measure| {
            let age = measure.at.elapsed();
            age < FRESH || (age < STALE && fits(measure))
        };
        let now = match measure.as_mut().filter(believed) {
            Some(now) => now,
            None => measure.insert(Measure { bytes: of(folder)?, at: Instant::now() }),
        };
        // A change that does not enlarge the vault is allowed even in a full one.
        if grown > 0 && !fits(now) {
            return Err(Error::VaultFull { bytes: now.bytes, most: self.most });
        }
        now.bytes += grown;
        Ok(Taken { quota: self, grown, shrunk })
    }

    /// Gives back the quota of a removed note.
    pub(super) fn give_back(&self, bytes: u64) {
        self.less(blocks(bytes));
    }

    fn less(&self, bytes: u64) {
        if let Some(measure) = self.measure().as_mut() {
            measure.bytes = measure.bytes.saturating_sub(bytes);
        }
    }

    fn measure(&self) -> MutexGuard<'_, Option<Measure>> {
        lock(&self.measure)
    }
}

impl Taken<'_> {
    /// Commits the quota: the note is in its place.
    pub(super) fn keep(mut self) {
        self.grown = 0;
        self.quota.less(self.shrunk);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.grown > 0 {
            self.quota.less(self.grown);
        }
    }
}

fn blocks(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_BYTES)
}

/// Total size of all files and folders.
fn of(folder: &VaultFolder) -> Result<u64, Error> {
    let (mut bytes, mut after) = (0, None::<String>);
    loop {
        let walk = WalkParams {
            stat: true,
            every_file: true,
            wants: WalkEntryKind::is_listed,
            after: after.as_deref(),
            most: PAGE,
            ..WalkParams::everything(&|| false)
        };
        let (items, _) = walk.of(folder, &NotePath::default())?;
        bytes += items.iter().map(|item| blocks(item.size_bytes)).sum::<u64>();
        match items.last() {
            Some(last) if items.len() == PAGE => after = Some(last.path.clone()),
            _ => return Ok(bytes),
        }
    }
}
