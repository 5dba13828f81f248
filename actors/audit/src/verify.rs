//! Verification: every line against the chain, the ends against what was told of them.

use std::{
    fs,
    io::BufReader,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    ChainHash, Entry, Error, Head,
    chain::split_line,
    entry::{CUT, TRIMMED},
    files::{Line, Lines, Segments},
};

/// A whole log, as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Number of the first entry that is kept; 1 unless older ones were trimmed.
    pub first: u64,
    /// Number of entries.
    pub entries: u64,
    /// The last entry and its hash, as `SEQ:HASH`; keep it elsewhere to tell a new chain apart.
    pub head: String,
    /// True when half a line stands behind the last entry, as after a kill.
    pub unfinished: bool,
}

/// Where and how the log is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum AuditFault {
    /// The files cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Error),
    /// A line is not an entry.
    #[error("{} line {line}: is not an entry", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// An entry's number does not follow the one before.
    #[error("{} line {line}: entry {found} where {expected} was expected: entries are missing", path.display())]
    Gap {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The number that follows.
        expected: u64,
        /// The number that is there.
        found: u64,
    },
    /// An entry's hash is not that of it and the chain before it.
    #[error("{} line {line}: entry {seq} was changed, or one before it was", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The entry.
        seq: u64,
    },
    /// The log begins later than with its first entry, and does not say that it was trimmed there.
    #[error(
        "the log begins with entry {first}, and no entry says that the older ones were trimmed"
    )]
    Beheaded {
        /// The first entry.
        first: u64,
    },
    /// A daemon found that the log had been cut.
    #[error("entry {seq} says that the log ended with {found} then, but {told} had been in it")]
    WasCut {
        /// The entry that says so.
        seq: u64,
        /// Number of the last entry that was there.
        found: u64,
        /// The head that had been told.
        told: String,
    },
    /// The log ends before an entry that was in it, or has another one there.
    #[error("the log ends with {found}, but {told} was in it")]
    Cut {
        /// The last entry, or the one with the told number.
        found: Head,
        /// The head that was told.
        told: Head,
    },
}

/// Verifies the log in a state folder, and that `told`, a head that was kept elsewhere, is in it.
/// Blocks, and reads every file. Legal while a daemon appends.
///
/// # Errors
/// The first fault.
pub fn verify(state: &Path, told: Option<Head>) -> Result<Verification, AuditFault> {
    // Read first: what is appended meanwhile is beyond it.
    let own = Segments::stored_head(state)?;
    let segments = Segments::list(state)?;
    let mut walk = Walk { told: own.into_iter().chain(told).collect(), ..Walk::default() };
    for segment in &segments {
        let file = fs::File::open(&segment.path).map_err(Error::io(&segment.path))?;
        for line in Lines::new(segment.path.clone(), BufReader::new(file)) {
            walk.line(&segment.path, line?)?;
        }
    }
    walk.end()
}

#[derive(Default)]
struct Walk {
    first: Option<u64>,
    last: Option<Head>,
    entries: u64,
    unfinished: bool,
    /// Start of the chain of a trimmed log, as its first line has it by its own hash.
    begins_with: Option<ChainHash>,
    trimmed_to_first: bool,
    /// First entry that tells of a cut, and what it tells.
    was_cut: Option<(u64, u64, String)>,
    told: Vec<Head>,
}

impl Walk {
    fn line(&mut self, path: &Path, line: Line) -> Result<(), AuditFault> {
        let Line { number, bytes, whole } = line;
        if !whole {
            self.unfinished = true;
            return Ok(());
        }
        let malformed = || AuditFault::Malformed { path: path.to_owned(), line: number };
        let (hash, json) = split_line(&bytes).ok_or_else(malformed)?;
        let entry: Entry = serde_json::from_slice(json).map_err(|_| malformed())?;
        let seq = entry.seq;
        let before = match (self.last, seq) {
            (Some(last), _) => last,
            (None, 1) => Head::START,
            // Trimmed entries cannot be hashed: the entry that records the trim has this line's hash.
            (None, _) => {
                self.begins_with = Some(hash);
                Head { seq: seq.saturating_sub(1), hash }
            }
        };
        if seq != before.seq + 1 {
            let (path, expected) = (path.to_owned(), before.seq + 1);
            return Err(AuditFault::Gap { path, line: number, expected, found: seq });
        }
        let unknown = self.last.is_none() && seq != 1;
        if !unknown && before.hash.next(json) != hash {
            return Err(AuditFault::Changed { path: path.to_owned(), line: number, seq });
        }
        let head = Head { seq, hash };
        self.first.get_or_insert(seq);
        if let Some(told) = self.told.iter().find(|told| told.seq == seq && **told != head) {
            return Err(AuditFault::Cut { found: head, told: *told });
        }
        if entry.kind == TRIMMED && Some(entry.data["first"].as_u64()) == Some(self.first) {
            let first_hash = entry.data["first_hash"].as_str().and_then(|text| text.parse().ok());
            self.trimmed_to_first |= first_hash == self.begins_with;
        }
        if entry.kind == CUT {
            let (found, told) = (&entry.data["found"], &entry.data["told"]);
            let (found, told) = (found.as_u64().unwrap_or_default(), told.as_str());
            self.was_cut.get_or_insert((seq, found, told.unwrap_or_default().to_owned()));
        }
        self.last = Some(head);
        self.entries += 1;
        Ok(())
    }

    fn end(self) -> Result<Verification, AuditFault> {
        let first = self.first.unwrap_or(1);
        if first != 1 && !self.trimmed_to_first {
            return Err(AuditFault::Beheaded { first });
        }
        let head = self.last.unwrap_or(Head::START);
        if let Some(told) = self.told.iter().find(|told| told.seq > head.seq) {
            return Err(AuditFault::Cut { found: head, told: *told });
        }
        if let Some((seq, found, told)) = self.was_cut {
            return Err(AuditFault::WasCut { seq, found, told });
        }
        let (entries, unfinished) = (self.entries, self.unfinished);
        Ok(Verification { first, entries, head: head.to_string(), unfinished })
    }
}
