//! Write-ahead files: lines that are not in the state folder yet, in two files that take turns.

use std::{
    fs::{File, OpenOptions},
    io::{BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{ChainHash, Entry, Error, Head, chain::split_line, verify::Lines};

/// One of the two files.
#[derive(Debug)]
pub(crate) struct TailFile {
    path: PathBuf,
    file: File,
    bytes: u64,
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
        let opened =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path);
        let file = opened.map_err(Error::io(&path))?;
        let bytes = file.metadata().map_err(Error::io(&path))?.len();
        Ok(Self { path, file, bytes })
    }

    /// Writes a line with its end. Nothing of it stays when that fails.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        if let Err(source) = self.file.write_all(line) {
            // Half a line that stays is passed over by the next start.
            let _ = self.file.set_len(self.bytes);
            return Err(Error::Io { path: self.path.clone(), source });
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Empties it; what was in it is in the state folder.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.file.set_len(0).map_err(Error::io(&self.path))?;
        self.bytes = 0;
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
