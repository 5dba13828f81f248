//! Line matcher: a compiled query and the lines that it matches.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use memchr::{memchr_iter, memrchr_iter};
use regex_syntax::ParserBuilder;

use super::SearchParams;
use crate::Error;
use crate::answer::SearchRow;
use crate::scan_window::{PATTERN_BYTES, ScanWindow};

/// Maximum number of bytes shown of a line.
const LINE_BYTES: usize = 1_000;

/// Compiled query.
pub(crate) struct CompiledQuery {
    matcher: RegexMatcher,
    window: ScanWindow,
}

/// Reason why a note has no result.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Cancelled, or out of time.
    Stopped,
    /// A line of the note is too long for the query; the reason is for people.
    TooLong(String),
}

impl CompiledQuery {
    /// Compiles a query.
    ///
    /// # Errors
    /// [`Error::Pattern`] for an invalid or too large pattern, or one that extends over a line's
    /// end.
    pub(crate) fn new(ask: &SearchParams<'_>) -> Result<Self, Error> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .case_insensitive(!ask.case_sensitive)
            .word(ask.whole_word)
            .fixed_strings(!ask.regex)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES)
            .line_terminator(Some(b'\n'));
        let wrong = |error: &dyn std::fmt::Display| Error::Pattern(error.to_string());
        let matcher = builder.build(ask.query).map_err(|error| wrong(&error))?;
        let escaped = (!ask.regex).then(|| regex_syntax::escape(ask.query));
        let pattern = ParserBuilder::new()
            .utf8(false)
            .case_insensitive(!ask.case_sensitive)
            .build()
            .parse(escaped.as_deref().unwrap_or(ask.query))
            .map_err(|error| wrong(&error))?;
        Ok(Self { matcher, window: ScanWindow::of(&pattern, 0)? })
    }

    /// Limits the text shown at once.
    #[cfg(test)]
    pub(super) fn shown(mut self, most: usize) -> Self {
        self.window.most = most;
        self
    }

    /// Makes a searcher for one thread.
    pub(crate) fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .build()
    }

    /// First matching lines of a note; when they exceed the room in bytes, the last is one too
    /// many.
    pub(super) fn hits(
        &self,
        searcher: &mut Searcher,
        bytes: &[u8],
        room: Room,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<SearchRow>, Unanswered> {
        let mut gathered = Lines { bytes, from: 0, before: 0, room, taken: 0, hits: Vec::new() };
        while gathered.has_room() {
            let Some(end) = self.window.end(bytes, gathered.from) else {
                let rest = &bytes[gathered.from..];
                let line = memchr_iter(b'\n', rest).next().unwrap_or(rest.len());
                return Err(Unanswered::TooLong(self.window.refusal(line)));
            };
            let window = &bytes[gathered.from..end];
            // Reading memory cannot fail, and the sink's error has no value.
            let Ok(()) = searcher.search_slice(&self.matcher, window, &mut gathered) else {
                return Ok(Vec::new());
            };
            if end == bytes.len() {
                break;
            }
            if stopped() {
                return Err(Unanswered::Stopped);
            }
            gathered.before += memchr_iter(b'\n', window).count() as u64;
            gathered.from = end;
        }
        Ok(gathered.hits)
    }
}

/// Limits on the results of one note.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) hits: usize,
    pub(super) bytes: usize,
    /// Number of lines before and after each match.
    pub(super) context_lines: usize,
}

struct Lines<'b> {
    bytes: &'b [u8],
    /// Offset of the window being searched, and the number of lines before it.
    from: usize,
    before: u64,
    room: Room,
    taken: usize,
    hits: Vec<SearchRow>,
}

impl Lines<'_> {
    fn has_room(&self) -> bool {
        self.hits.len() < self.room.hits && self.taken <= self.room.bytes
    }
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let start = self.from + found.absolute_byte_offset() as usize;
        let end = start + found.bytes().len();
        let hit = SearchRow {
            path: String::new(),
            line_number: self.before + found.line_number().unwrap_or(0),
            line: shown(found.bytes()),
            context: context(self.bytes, start, end, self.room.context_lines),
        };
        self.taken += hit.bytes();
        self.hits.push(hit);
        Ok(self.has_room())
    }
}

/// Line with those around it.
fn context(bytes: &[u8], start: usize, end: usize, lines: usize) -> String {
    // The newline before the line is the first one found going back.
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

/// Line without its end, cut if it is long.
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
