//! Keyset pagination of the log, the newest entries first.

use std::{collections::VecDeque, fs::File, io, io::BufReader, path::Path};

use crate::{
    Entry, Error, Filter,
    entry::parsed,
    segments::{Segment, Segments},
    verify::Lines,
};

/// Bytes of files that are read for one page, after which it ends with the file.
const MOST_READ: u64 = 64 * 1024 * 1024;

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
