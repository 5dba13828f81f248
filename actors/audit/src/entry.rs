//! Entries, as they are read: filtered in order, and by pages, the newest first (keyset pagination).

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufReader},
    path::Path,
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error,
    chain::split_line,
    files::{Lines, Segment, Segments},
};

/// Kind of the entry that says from where on the log is kept.
pub(crate) const TRIMMED: &str = "log.trimmed";
/// Kind of the entry that says that half a line was found behind the last one.
pub(crate) const MENDED: &str = "log.mended";
/// Kind of the entry that says that the log did not reach as far as it had.
pub(crate) const CUT: &str = "log.cut";
/// Kind of the entry that says that some before it could not be written.
pub(crate) const RESUMED: &str = "log.resumed";
/// Bytes of files that are read for one page, after which it ends with the file.
const MOST_READ: u64 = 64 * 1024 * 1024;

/// An entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number: contiguous, from 1.
    pub seq: u64,
    /// Time of the wall clock, which may step back.
    pub at: DateTime<Utc>,
    /// Kind: `call` for a tool call.
    pub kind: String,
    /// Contents, by kind.
    pub data: Value,
}

/// Writes the JSON of an [`Entry`] whose contents are JSON already.
pub(crate) fn write_entry(to: &mut Vec<u8>, seq: u64, at: DateTime<Utc>, kind: &str, data: &[u8]) {
    to.extend_from_slice(b"{\"seq\":");
    json(to, &seq);
    to.extend_from_slice(b",\"at\":");
    json(to, &at);
    to.extend_from_slice(b",\"kind\":");
    json(to, kind);
    to.extend_from_slice(b",\"data\":");
    to.extend_from_slice(data);
    to.push(b'}');
}

fn json(to: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(to, value).expect("numbers, times and texts serialize into memory");
}

/// Entries that are wanted. Empty, it wants all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those of this session.
    pub session: Option<String>,
    /// Those of this tool.
    pub tool: Option<String>,
    /// Those that came to this: `ok`, or an error's code.
    pub outcome: Option<String>,
    /// Those from this time on.
    pub since: Option<DateTime<Utc>>,
    /// Those before this time.
    pub until: Option<DateTime<Utc>>,
    /// Those behind this number.
    pub after: Option<u64>,
}

impl Filter {
    /// True if the entry is wanted.
    pub fn wants(&self, entry: &Entry) -> bool {
        let same = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| entry.data[name].as_str() == Some(wanted))
        };
        same("session", &self.session)
            && same("tool", &self.tool)
            && same("outcome", &self.outcome)
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
            && self.after.is_none_or(|after| entry.seq > after)
    }
}

/// Entries of the log in a state folder that a filter wants, oldest first, each with its JSON as it was
/// written. Blocks. A line that is not an entry is passed over: [`crate::verify()`] tells of it.
///
/// # Errors
/// When the folder cannot be listed, and as an item when a file cannot be read.
pub fn entries(
    state: &Path,
    filter: Filter,
) -> Result<impl Iterator<Item = Result<(Entry, String), Error>>, Error> {
    let mut segments = Segments::list(state)?;
    let after = filter.after.unwrap_or(0);
    // The file with the entry behind it is the last that begins at or before that one.
    let begins = segments.partition_point(|segment| segment.first <= after.saturating_add(1));
    segments.drain(..begins.saturating_sub(1));
    let lines = segments.into_iter().flat_map(|segment| {
        let opened = File::open(&segment.path).map_err(Error::io(&segment.path));
        let (lines, error) = match opened {
            Ok(file) => (Some(Lines::new(segment.path, BufReader::new(file))), None),
            Err(error) => (None, Some(Err(error))),
        };
        lines.into_iter().flatten().map(|line| line.map(|line| line.bytes)).chain(error)
    });
    Ok(lines.filter_map(move |line| match line {
        Err(error) => Some(Err(error)),
        Ok(line) => {
            let (entry, json) = parsed(&line)?;
            let text = String::from_utf8(json.to_vec()).ok()?;
            filter.wants(&entry).then_some(Ok((entry, text)))
        }
    }))
}

/// The entry of a line, and its JSON; `None` for a line that is none.
fn parsed(line: &[u8]) -> Option<(Entry, &[u8])> {
    let (_, json) = split_line(line)?;
    Some((serde_json::from_slice(json).ok()?, json))
}

/// A page of the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuditPage {
    /// The newest first. Fewer than were asked for, or none, also where there are more: a page looks at
    /// a bounded part of the files.
    pub entries: Vec<Entry>,
    /// Number to pass as `before` for the next page; `None` at the end.
    pub next: Option<u64>,
}

/// The newest entries before a number that a filter wants. Blocks. Legal while a daemon appends.
///
/// # Errors
/// When the folder or a file cannot be read.
pub fn newest(
    state: &Path,
    filter: &Filter,
    before: Option<u64>,
    limit: usize,
) -> Result<AuditPage, Error> {
    let before = before.unwrap_or(u64::MAX);
    let (mut page, mut read) = (AuditPage::default(), 0);
    let segments = Segments::list(state)?.into_iter().rev();
    let mut older = segments.filter(|segment| segment.first < before).peekable();
    while let Some(segment) = older.next() {
        let room = limit - page.entries.len();
        let Some(found) = last_of(&segment, filter, before, room)? else { break };
        page.entries.extend(found.entries.into_iter().rev());
        if found.more {
            page.next = page.entries.last().map(|entry| entry.seq);
            break;
        }
        read += segment.bytes;
        if read >= MOST_READ && older.peek().is_some() {
            page.next = Some(segment.first);
            break;
        }
    }
    Ok(page)
}

/// The last entries of a file that are wanted.
struct Found {
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// True when the file has older ones.
    more: bool,
}

/// None where the file is gone: it was trimmed meanwhile, and all older ones before it.
fn last_of(
    segment: &Segment,
    filter: &Filter,
    before: u64,
    room: usize,
) -> Result<Option<Found>, Error> {
    let file = match File::open(&segment.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(Error::io(&segment.path))?,
    };
    let mut found = Found { entries: VecDeque::new(), more: false };
    for line in Lines::new(segment.path.clone(), BufReader::new(file)) {
        let Some((entry, _)) = parsed(&line?.bytes) else { continue };
        if entry.seq >= before {
            break;
        }
        if filter.wants(&entry) {
            found.entries.push_back(entry);
            if found.entries.len() > room {
                found.entries.pop_front();
                found.more = true;
            }
        }
    }
    Ok(Some(found))
}
