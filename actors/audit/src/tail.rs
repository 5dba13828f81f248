//! Write-ahead files: lines that are not in the state folder yet, in two files that take turns.
//!
//! A file is written over from its beginning when its turn comes again: its pages are there already,
//! which makes a write a copy and nothing else. What is left in it of earlier turns continues no
//! chain, so that a start passes it over.

use std::{
    fs::{File, OpenOptions},
    io::BufReader,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{ChainHash, Entry, Error, Head, chain::split_line, verify::Lines};

/// Size above which a file gives its room back at the end of its turn.
const KEPT_BYTES: u64 = 1024 * 1024;

/// Write-ahead file, one of two.
#[derive(Debug)]
pub(crate) struct TailFile {
    path: PathBuf,
    file: File,
    /// Bytes of this turn.
    bytes: u64,
    /// Bytes of this turn, or of a longer one before it.
    size: u64,
}

/// A line of a tail.
pub(crate) struct TailLine {
    pub(crate) seq: u64,
    pub(crate) hash: ChainHash,
    pub(crate) json: Vec<u8>,
}

impl TailFile {
    /// Opens both files with what is in them, which stays.
    pub(crate) fn both(run: &Path) -> Result<[Self; 2], Error> {
        Ok([Self::open(run.join("tail.a"))?, Self::open(run.join("tail.b"))?])
    }

    fn open(path: PathBuf) -> Result<Self, Error> {
        let mut how = OpenOptions::new();
        how.create(true).write(true).truncate(false).read(true).mode(0o600);
        let opened = how.open(&path);
        let file = opened.map_err(Error::io(&path))?;
        let bytes = file.metadata().map_err(Error::io(&path))?.len();
        Ok(Self { path, file, bytes, size: bytes })
    }

    /// Writes a line with its end. Nothing of it stays when that fails.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        if let Err(source) = self.file.write_all_at(line, self.bytes) {
            // Half a line that stays is passed over by the next start.
            let _ = self.file.set_len(self.bytes);
            self.size = self.bytes;
            return Err(Error::Io { path: self.path.clone(), source });
        }
        self.bytes += line.len() as u64;
        self.size = self.size.max(self.bytes);
        Ok(())
    }

    /// Begins another turn of the file, whose lines are in the state folder.
    pub(crate) fn rewind(&mut self) -> Result<(), Error> {
        if self.size > KEPT_BYTES {
            return self.clear();
        }
        self.bytes = 0;
        Ok(())
    }

    /// Empties the file, whose lines are in the state folder.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        if self.size > 0 {
            self.file.set_len(0).map_err(Error::io(&self.path))?;
        }
        (self.bytes, self.size) = (0, 0);
        Ok(())
    }

    /// Lines of both files that continue a chain, in order.
    pub(crate) fn continuing(tails: [&Self; 2], head: Head) -> Result<Vec<TailLine>, Error> {
        let mut lines = Vec::new();
        for tail in tails {
            let file = File::open(&tail.path).map_err(Error::io(&tail.path))?;
            for line in Lines::new(tail.path.clone(), BufReader::new(file)) {
                lines.extend(TailLine::of(&line?.bytes));
            }
        }
        lines.sort_by_key(|line| line.seq);
        let mut head = head;
        lines.retain(|line| {
            let follows = line.seq == head.seq + 1 && head.hash.next(&line.json) == line.hash;
            if follows {
                head = Head { seq: line.seq, hash: line.hash };
            }
            follows
        });
        Ok(lines)
    }
}

impl TailLine {
    fn of(line: &[u8]) -> Option<Self> {
        let (hash, json) = split_line(line)?;
        let entry: Entry = serde_json::from_slice(json).ok()?;
        Some(Self { seq: entry.seq, hash, json: json.to_vec() })
    }
}
