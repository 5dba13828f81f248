//! What makes a line a match.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use memchr::{memchr_iter, memrchr_iter};

use super::{Hit, Request};
use crate::Error;
use crate::stretch::PATTERN_BYTES;

/// What is shown of a line at most, in bytes.
const LINE_BYTES: usize = 1_000;

/// A compiled query.
pub(crate) struct Question(RegexMatcher);

impl Question {
    /// Compiles a query.
    ///
    /// # Errors
    /// [`Error::Pattern`]: no pattern, too large a one, or one that goes over a line's end.
    pub(crate) fn new(ask: &Request<'_>) -> Result<Self, Error> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .case_insensitive(!ask.case_sensitive)
            .word(ask.whole_word)
            .fixed_strings(!ask.regex)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES)
            .line_terminator(Some(b'\n'));
        let built = builder.build(ask.query);
        built.map(Self).map_err(|error| Error::Pattern(error.to_string()))
    }

    /// For one thread.
    pub(crate) fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .build()
    }

    /// The first lines of a note that match; of those that are more bytes than there is room for,
    /// the last is one too many.
    pub(super) fn hits(&self, searcher: &mut Searcher, bytes: &[u8], room: Room) -> Vec<Hit> {
        let mut gathered = Lines { bytes, room, taken: 0, hits: Vec::new() };
        if room.hits == 0 {
            return Vec::new();
        }
        // Reading memory cannot fail, and the sink's error has no value.
        let Ok(()) = searcher.search_slice(&self.0, bytes, &mut gathered) else {
            return Vec::new();
        };
        gathered.hits
    }
}

/// What is wanted of a note at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) hits: usize,
    pub(super) bytes: usize,
    /// Before and after each line.
    pub(super) context_lines: usize,
}

struct Lines<'b> {
    bytes: &'b [u8],
    room: Room,
    taken: usize,
    hits: Vec<Hit>,
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let start = usize::try_from(found.absolute_byte_offset()).unwrap_or(usize::MAX);
        let end = start + found.bytes().len();
        let hit = Hit {
            path: String::new(),
            line_number: found.line_number().unwrap_or(0),
            line: shown(found.bytes()),
            context: context(self.bytes, start, end, self.room.context_lines),
        };
        self.taken += hit.bytes();
        self.hits.push(hit);
        Ok(self.hits.len() < self.room.hits && self.taken <= self.room.bytes)
    }
}

/// The line with those around it.
fn context(bytes: &[u8], start: usize, end: usize, lines: usize) -> String {
    // The newline before the line is the first that is found going back.
    let first = memrchr_iter(b'\n', &bytes[..start]).nth(lines).map_or(0, |newline| newline + 1);
    let last = match lines.checked_sub(1) {
        None => end,
        Some(more) => {
            memchr_iter(b'\n', &bytes[end..]).nth(more).map_or(bytes.len(), |at| end + at + 1)
        }
    };
    let shown: Vec<_> = bytes[first..last].split_inclusive(|b| *b == b'\n').map(shown).collect();
    shown.join("\n")
}

/// A line without its end, cut if it is long.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() > LINE_BYTES {
        false => String::from_utf8_lossy(line).into_owned(),
        true => {
            let text = String::from_utf8_lossy(&line[..LINE_BYTES]);
            let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
            format!("{whole}[... {} bytes]", line.len() - whole.len())
        }
    }
}
