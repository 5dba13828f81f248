//! Ballast: disk space reserved for the journal, so that a disk filled by others ends neither a
//! commit nor the next start.
//!
//! ```text
//! journal/db   │ log │ blocks behind its end │   commits go on into these
//! RESERVE      │ blocks without a use        │   given up at a start that has no room for its check
//! ```
//!
//! Blocks preallocated behind the log's end cannot be taken by others, however the disk fills
//! meanwhile. Space of a file that is given up is anybody's at that moment, which is why commits do
//! not depend on it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstat, statvfs};

use crate::error::IoContext;
use crate::{Error, NewEvent, Options, fsx};

/// Name of the reserve's file, beside the database.
const FILE: &str = "RESERVE";
/// Kind of the event that reports whether the reserve is complete.
const KIND: &str = "journal.reserve";
/// Divisor of the reserve: this part of it lies behind the log's end.
const LOG_PART: u64 = 4;

/// Reserve of an open journal.
pub(crate) struct Reserve {
    log: File,
    file: PathBuf,
    has_file: bool,
    bytes: u64,
    whole: bool,
    event: Option<NewEvent>,
}

impl Reserve {
    /// Makes the reserve of the open database in `path`, below `options.dir`.
    pub(crate) fn of(path: &Path, options: &Options) -> Result<Self, Error> {
        let log = File::options().write(true).open(path.join("db"));
        let file = options.dir.join(FILE);
        let has_file = file.exists();
        let mut reserve = Self {
            log: log.doing("opening the database's log")?,
            file,
            has_file,
            bytes: options.reserve_mb << 20,
            whole: true,
            event: None,
        };
        if reserve.bytes == 0 {
            fsx::remove_file(&reserve.file)?;
            reserve.has_file = false;
        }
        reserve.keep();
        Ok(reserve)
    }

    /// Refills the reserve where there is room. Changes nothing that was written.
    pub(crate) fn keep(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let log = self.keep_log();
        if !self.has_file {
            self.has_file = self.may_take(self.bytes) && self.make_file().is_ok();
        }
        let whole = log && self.has_file;
        if whole == std::mem::replace(&mut self.whole, whole) {
            return;
        }
        match whole {
            true => tracing::info!("the journal has its reserve again"),
            false => tracing::warn!("the disk has no room for all of the journal's reserve"),
        }
        self.event = Some(NewEvent {
            kind: KIND.into(),
            subject: "journal".into(),
            data: serde_json::json!({ "whole": whole }),
        });
    }

    /// Follows the database to a new file: that of the open database in `path`.
    pub(crate) fn follow(&mut self, path: &Path) -> Result<(), Error> {
        let log = File::options().write(true).open(path.join("db"));
        self.log = log.doing("opening the database's log")?;
        self.keep();
        Ok(())
    }

    /// Event to publish since the last call, if any.
    pub(crate) fn change_event(&mut self) -> Option<NewEvent> {
        self.event.take()
    }

    /// True if the log has its part now.
    fn keep_log(&self) -> bool {
        let Ok(stat) = fstat(&self.log) else { return false };
        let part = self.bytes / LOG_PART;
        let length = u64::try_from(stat.st_size).unwrap_or_default();
        let blocks = u64::try_from(stat.st_blocks).unwrap_or_default() * 512;
        if blocks >= length + part / 2 {
            return true;
        }
        // Preallocation behind the end changes nothing that is read: the length stays as it is.
        let behind = FallocateFlags::KEEP_SIZE;
        self.may_take(part) && fallocate(&self.log, behind, length, part).is_ok()
    }

    fn make_file(&self) -> Result<(), Error> {
        let made = File::create(&self.file).and_then(|file| {
            fallocate(&file, FallocateFlags::empty(), 0, self.bytes - self.bytes / LOG_PART)?;
            Ok(())
        });
        if made.is_err() {
            fsx::remove_file(&self.file)?;
        }
        made.doing("making the reserve")
    }

    /// True if taking `bytes` uses at most half of what is free; the last room of a disk is left to
    /// whoever needs it.
    fn may_take(&self, bytes: u64) -> bool {
        free_bytes(&self.file).is_some_and(|free| free >= 2 * bytes)
    }
}

/// Removes the reserve's file before a start if the check of the database would not fit otherwise.
pub(crate) fn give_up(dir: &Path, database_bytes: u64) -> Result<(), Error> {
    let file = dir.join(FILE);
    // The database writes a little when it opens.
    let wanted = database_bytes + (4 << 20);
    if !file.exists() || free_bytes(&file).is_some_and(|free| free >= wanted) {
        return Ok(());
    }
    tracing::warn!(wanted, "the disk is full: the journal gives up its reserve to start");
    fsx::remove_file(&file)
}

/// Free space for this process in the folder of `file`; root may use more than others.
fn free_bytes(file: &Path) -> Option<u64> {
    let fs = statvfs(file.parent()?).ok()?;
    let root = rustix::process::geteuid().is_root();
    let blocks = if root { fs.f_bfree } else { fs.f_bavail };
    Some(blocks.saturating_mul(fs.f_frsize))
}

/// Size of the reserve's file in a state directory, in bytes; `hivekeep check` shows it.
pub fn reserved_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join(FILE)).map_or(0, |file| file.len())
}
