//! Files of the log: segments in the state folder, named by their first entries, and write-ahead files in
//! the run folder, for lines that are not in the state folder yet, two that take turns.
//!
//! A write-ahead file is written over from its beginning when its turn comes again: its pages are there
//! already, which makes a write a copy and nothing else. What is left in it of earlier turns continues no
//! chain, so that a start passes it over.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{ChainHash, Entry, Error, Head, chain::split_line};

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".log";
/// Size above which a file gives its room back at the end of its turn.
const KEPT_BYTES: u64 = 1024 * 1024;
/// The longest line that is read as one. Entries are far below.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Segment: a file of the log in the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The files of a log.
pub(crate) struct Segments;

impl Segments {
    /// Path of the file that begins with an entry. Names sort as the entries do.
    pub(crate) fn path(state: &Path, first: u64) -> PathBuf {
        state.join(format!("{PREFIX}{first:020}{SUFFIX}"))
    }

    /// Path of the file that says how far the log reaches.
    pub(crate) fn head(state: &Path) -> PathBuf {
        state.join("head")
    }

    /// Reads how far the log reached when it was synced last.
    pub(crate) fn stored_head(state: &Path) -> Result<Option<Head>, Error> {
        let path = Self::head(state);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { path, source }),
            Ok(text) => Ok(text.lines().next().and_then(|line| line.parse().ok())),
        }
    }

    /// Lists the files, oldest first; none where there is no folder.
    pub(crate) fn list(state: &Path) -> Result<Vec<Segment>, Error> {
        let listed = match fs::read_dir(state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(Error::io(state))?,
        };
        let mut found = Vec::new();
        for item in listed {
            let item = item.map_err(Error::io(state))?;
            let name = item.file_name();
            let first = name.to_str().and_then(|name| {
                name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u64>().ok()
            });
            if let Some(first) = first {
                let bytes = item.metadata().map_err(Error::io(item.path()))?.len();
                found.push(Segment { first, path: item.path(), bytes });
            }
        }
        found.sort_by_key(|segment| segment.first);
        Ok(found)
    }
}

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

/// A line of a file.
pub(crate) struct Line {
    /// Number of the line, from 1.
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
    /// False for a last line without an end, and for a line that is too long.
    pub(crate) whole: bool,
}

/// Lines of a file, bounded.
pub(crate) struct Lines<R> {
    path: PathBuf,
    reader: R,
    number: u64,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(path: PathBuf, reader: R) -> Self {
        Self { path, reader, number: 0, ended: false }
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let most = MAX_LINE_BYTES as u64 + 1;
        io::Read::take(&mut self.reader, most).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let whole = bytes.last() == Some(&b'\n');
        if whole {
            bytes.pop();
        }
        Ok(Some(Line { number: self.number, bytes, whole }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().map_err(Error::io(&self.path));
        // Behind half a line, or one that is none by its length, there is nothing to be read.
        self.ended = !matches!(&read, Ok(Some(line)) if line.whole);
        read.transpose()
    }
}
