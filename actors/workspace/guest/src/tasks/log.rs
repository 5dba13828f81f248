//! Write-ahead log of the tasks: one file to which records are appended.
//!
//! ```text
//! mark and salt │ length, chain, record │ length, chain, record │ 0 0 0 0 …
//! ```
//! The file goes on in zeros that were written ahead: a record overwrites some, so that to flush
//! it is to flush its bytes, and the file system has nothing to write down of its own.
//!
//! Each record's chain is a hash of it and of the chain before, from a salt on. The records end
//! where that does not hold: at the zeros, at one that a machine's end has torn, or at one that
//! came after it and was on the disk earlier.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::files::sync_parent;

const MARK: &[u8; 16] = b"hivekeep tasks 1";
const SALT_AT: u64 = 16;
const FIRST_AT: u64 = 32;
/// Length and chain.
const HEAD_BYTES: usize = 4 + CHAIN_BYTES;
const CHAIN_BYTES: usize = 16;
/// Zeros written at a time.
const AHEAD_BYTES: u64 = 64 * 1024;
/// A longer record is none. A task's command and environment, each byte six in JSON, are shorter.
const MAX_RECORD_BYTES: usize = 8 * 1024 * 1024;
/// A file that has grown to this, and to twice what it began with, is written anew.
const RENEW_BYTES: u64 = 1024 * 1024;

type Chain = [u8; CHAIN_BYTES];

/// The file, and where its records end.
#[derive(Debug)]
pub struct TaskLog {
    file: File,
    /// Place of the next record.
    end: u64,
    /// The file's length.
    room: u64,
    chain: Chain,
    renew_at: u64,
    /// Some of what was not flushed may never be.
    broken: bool,
}

/// Whether a record has to be on the disk when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFlush {
    /// The record has to be, and with it all before.
    Now,
    /// The record may go with the next that has to be.
    WithTheNext,
}

impl TaskLog {
    /// Writes a new file with these records, durably, in the place of any there is.
    ///
    /// # Errors
    /// When it cannot be written; then what was there is there.
    pub fn create(
        path: &Path,
        records: impl Iterator<Item = io::Result<Vec<u8>>>,
    ) -> io::Result<(Self, Vec<u64>)> {
        let staged = staged(path);
        let written = Self::write(&staged, records).and_then(|log| {
            std::fs::rename(&staged, path)?;
            sync_parent(path)?;
            Ok(log)
        });
        if written.is_err() {
            // On a full disk half a file takes room that others need.
            let _ = std::fs::remove_file(&staged);
        }
        written
    }

    fn write(
        path: &Path,
        records: impl Iterator<Item = io::Result<Vec<u8>>>,
    ) -> io::Result<(Self, Vec<u64>)> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        let salt = salt();
        file.write_all_at(MARK, 0)?;
        file.write_all_at(&salt, SALT_AT)?;
        let (end, room) = (FIRST_AT, FIRST_AT);
        let mut log = Self { file, end, room, chain: salt, renew_at: RENEW_BYTES, broken: false };
        let places: Vec<u64> = records
            .map(|record| log.append(&[record?], LogFlush::WithTheNext).map(|places| places[0]))
            .collect::<io::Result<_>>()?;
        if log.room == FIRST_AT {
            log.widen(AHEAD_BYTES)?;
        }
        log.file.sync_all()?;
        log.renew_at = RENEW_BYTES.max(2 * log.end);
        Ok((log, places))
    }

    /// Reads a file back; `each` is given every record and its place.
    ///
    /// # Errors
    /// When it cannot be read, is none, or `each` says so.
    pub fn open(
        path: &Path,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let room = file.metadata()?.len();
        let mut reader = io::BufReader::with_capacity(64 * 1024, &file);
        let (mut mark, mut chain) = ([0; 16], Chain::default());
        reader.read_exact(&mut mark)?;
        reader.read_exact(&mut chain)?;
        if mark != *MARK {
            let text = format!("{} is not a log of tasks", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let (mut end, mut record) = (FIRST_AT, Vec::new());
        while let Some((length, next)) = head(&mut reader)? {
            let beyond = end + HEAD_BYTES as u64 + length as u64;
            if length == 0 || length > MAX_RECORD_BYTES || beyond > room {
                break;
            }
            record.resize(length, 0);
            reader.read_exact(&mut record)?;
            if chained(&chain, &record) != next {
                break;
            }
            each(end, &record)?;
            (end, chain) = (beyond, next);
        }
        // The records were not written by this daemon, and so perhaps not flushed.
        file.sync_data()?;
        drop(reader);
        let renew_at = RENEW_BYTES.max(2 * end);
        Ok(Self { file, end, room, chain, renew_at, broken: false })
    }

    /// Adds records, all or none. Answers their places.
    ///
    /// # Errors
    /// When they cannot be written; then nothing is added.
    pub fn append(&mut self, records: &[Vec<u8>], flush: LogFlush) -> io::Result<Vec<u64>> {
        let (mut bytes, mut chain, mut places) = (Vec::new(), self.chain, Vec::new());
        for record in records {
            if record.is_empty() || record.len() > MAX_RECORD_BYTES {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            places.push(self.end + bytes.len() as u64);
            chain = chained(&chain, record);
            bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&chain);
            bytes.extend_from_slice(record);
        }
        let end = self.end + bytes.len() as u64;
        if end > self.room {
            self.widen(end - self.room)?;
        }
        self.file.write_all_at(&bytes, self.end)?;
        if flush == LogFlush::Now
            && let Err(error) = self.file.sync_data()
        {
            // The kernel forgets what it could not write: another flush would say nothing of it.
            self.broken = true;
            return Err(error);
        }
        (self.end, self.chain) = (end, chain);
        Ok(places)
    }

    /// Writes zeros ahead, for so many bytes and some more.
    fn widen(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = bytes.next_multiple_of(AHEAD_BYTES);
        let zeros = vec![0; AHEAD_BYTES as usize];
        let written = (0..wanted / AHEAD_BYTES)
            .try_for_each(|nth| self.file.write_all_at(&zeros, self.room + nth * AHEAD_BYTES))
            .and_then(|()| self.file.sync_all());
        if let Err(error) = written {
            let _ = self.file.set_len(self.room);
            return Err(error);
        }
        self.room += wanted;
        Ok(())
    }

    /// Reads a record at its place.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn record(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, at)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut record = vec![0; length];
        self.file.read_exact_at(&mut record, at + HEAD_BYTES as u64)?;
        Ok(record)
    }

    /// True if the file has grown, and most of it is superseded further on.
    pub fn is_long(&self) -> bool {
        self.end > self.renew_at
    }

    /// True if the file has to be rewritten before anything is added: what is there may not last.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Puts off writing it anew for its length until it has grown more.
    pub fn go_on(&mut self) {
        self.renew_at = self.end + RENEW_BYTES;
    }
}

/// Path of a file until it is whole.
pub fn staged(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Length and chain of the next record; `None` at the end of the file.
fn head(reader: &mut impl Read) -> io::Result<Option<(usize, Chain)>> {
    let mut head = [0; HEAD_BYTES];
    match reader.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (length, chain) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    Ok(Some((length as usize, chain.try_into().expect("the rest"))))
}

fn chained(before: &Chain, record: &[u8]) -> Chain {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(record);
    let mut chain = Chain::default();
    chain.copy_from_slice(&hasher.finalize().as_bytes()[..CHAIN_BYTES]);
    chain
}

/// A salt of its own for each file, so that no file's records pass for another's.
fn salt() -> Chain {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let of = format!("{} {} {}", now.tv_sec, now.tv_nsec, std::process::id());
    chained(&Chain::default(), of.as_bytes())
}

#[cfg(test)]
mod tests;
