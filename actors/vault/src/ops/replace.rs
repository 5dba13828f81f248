//! Text replacement with bounded cost: the size of the result is checked before it is made, and
//! cancellation at every match. What is written has the line ends of the note.

use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use hivekeep_file_engine::line_ends::{self, Search};
use regex_automata::Input;
use regex_automata::meta::{self, Regex};
use regex_automata::util::interpolate;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::Error;
use crate::path::NotePath;
use crate::scan_window::{PATTERN_BYTES, ScanWindow};

/// Maximum size of a pattern, and of its replacement, as given.
const MOST_BYTES: usize = 64 * 1024;
/// Maximum time to look for the matches of a pattern.
const PATIENCE: Duration = Duration::from_secs(30);

/// Replacement of text or of a pattern's matches.
pub(crate) enum TextReplacement {
    /// Literal text with literal text.
    Text { old: String, new: String },
    /// Matches of a pattern.
    Pattern(Box<CompiledPattern>),
}

/// Compiled pattern with its replacement.
pub(crate) struct CompiledPattern {
    regex: Regex,
    window: ScanWindow,
    /// True if no match extends over a line's end.
    in_line: bool,
    /// True if it names a line's end: the line ends of its replacement are meant as they are.
    names_line_end: bool,
    /// Literal text of the replacement, without the groups.
    new: String,
    /// Groups and their offsets in that text, in order.
    groups: Vec<(usize, usize)>,
}

impl TextReplacement {
    /// Compiles what a caller asks for. `$1` and `${name}` in the replacement of a pattern are its
    /// groups.
    ///
    /// # Errors
    /// [`Error::Pattern`].
    pub(crate) fn new(old: &str, new: &str, is_pattern: bool) -> Result<Self, Error> {
        match is_pattern {
            true => CompiledPattern::new(old, new).map(|pattern| Self::Pattern(Box::new(pattern))),
            false => Ok(Self::Text { old: old.to_owned(), new: new.to_owned() }),
        }
    }

    /// Limits the text that a pattern is shown at once.
    #[cfg(test)]
    pub(super) fn shown(mut self, most: usize) -> Self {
        if let Self::Pattern(pattern) = &mut self {
            pattern.window.most = most;
        }
        self
    }

    /// Returns the text with everything replaced, and the number of replacements. A result of more
    /// than `most` bytes is not made.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::PatternTooSlow`] or [`Error::Cancelled`].
    pub(crate) fn apply(
        &self,
        path: &NotePath,
        text: &str,
        most: u64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(String, usize), Error> {
        let mut made = Made {
            path,
            text,
            line_end: line_ends::of(text).next(),
            made: String::with_capacity(text.len()),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            taken: 0,
            count: 0,
            stopped,
            until: Instant::now() + PATIENCE,
        };
        match self {
            Self::Text { old, new } => {
                let search = Search::of(text, old);
                for found in search.found() {
                    made.begin(found.start)?;
                    made.push(&search.replacement(&found, new, made.line_end))?;
                    made.end(found.end);
                }
            }
            Self::Pattern(pattern) => pattern.apply(&mut made)?,
        }
        made.push(&text[made.taken..])?;
        Ok((made.made, made.count))
    }
}

impl CompiledPattern {
    fn new(old: &str, new: &str) -> Result<Self, Error> {
        if old.len().max(new.len()) > MOST_BYTES {
            let why = format!("it and what replaces it have at most {MOST_BYTES} bytes each");
            return Err(Error::Pattern(why));
        }
        let hir = ParserBuilder::new().multi_line(true).crlf(true).build().parse(old);
        let hir = hir.map_err(|error| Error::Pattern(error.to_string()))?;
        let config = Regex::config()
            .nfa_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(PATTERN_BYTES);
        let regex = meta::Builder::new().configure(config).build_from_hir(&hir);
        let regex = regex.map_err(|error| match error.syntax_error() {
            Some(syntax) => Error::Pattern(syntax.to_string()),
            None => Error::Pattern(error.to_string()),
        })?;
        let (mut between, mut groups) = (String::new(), Vec::new());
        interpolate::string(
            new,
            |group, before| groups.push((group, before.len())),
            |name| regex.group_info().to_index(regex_automata::PatternID::ZERO, name),
            &mut between,
        );
        groups.retain(|(group, _)| *group < regex.captures_len());
        let group_count = if groups.is_empty() { 0 } else { regex.captures_len() };
        let (window, in_line) = (ScanWindow::of(&hir, group_count)?, !has_line_end(&hir));
        let names_line_end = !in_line && ["\n", "\\n"].iter().any(|end| old.contains(end));
        Ok(Self { regex, window, in_line, names_line_end, new: between, groups })
    }

    fn apply(&self, made: &mut Made<'_>) -> Result<(), Error> {
        let text = made.text;
        let mut from = 0;
        loop {
            let end = match self.in_line {
                true => self.window.end(text.as_bytes(), from),
                false => (text.len() <= self.window.most).then_some(text.len()),
            };
            let Some(end) = end else {
                let bytes = match self.in_line {
                    true => text[from..].split('\n').next().map_or(0, str::len),
                    false => text.len(),
                };
                return Err(made.too_slow(self.window.refusal(bytes)));
            };
            // A match at the end, which is empty, belongs to the next window, if there is one.
            let last = end == text.len();
            let input = Input::new(text).span(from..end);
            if self.groups.is_empty() {
                let found = self.regex.find_iter(input).map(|found| found.range());
                for range in found.take_while(|range| last || range.start < end) {
                    made.begin(range.start)?;
                    self.write(made, &self.new)?;
                    made.end(range.end);
                }
            } else {
                for groups in self.regex.captures_iter(input) {
                    let whole = groups.get_group(0).expect("it matches").range();
                    if !last && whole.start == end {
                        break;
                    }
                    let group = |nth| groups.get_group(nth).map(|span| span.range());
                    made.begin(whole.start)?;
                    self.expand(made, group)?;
                    made.end(whole.end);
                }
            }
            if last {
                return Ok(());
            }
            made.look()?;
            from = end;
        }
    }

    /// Writes the replacement of a match.
    fn expand(
        &self,
        made: &mut Made<'_>,
        range: impl Fn(usize) -> Option<Range<usize>>,
    ) -> Result<(), Error> {
        let mut written = 0;
        for (group, at) in &self.groups {
            self.write(made, &self.new[written..*at])?;
            written = *at;
            if let Some(range) = range(*group) {
                made.push(&made.text[range])?;
            }
        }
        self.write(made, &self.new[written..])
    }

    /// Writes literal text of the replacement.
    fn write(&self, made: &mut Made<'_>, new: &str) -> Result<(), Error> {
        let line_end = made.line_end.filter(|_| !self.names_line_end);
        made.push(&line_ends::with_ends(new, iter::empty(), line_end))
    }
}

/// True if a match can contain a line's end.
fn has_line_end(pattern: &Hir) -> bool {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&b'\n'),
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&'\n'))
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&b'\n'))
        }
        HirKind::Repetition(repetition) => has_line_end(&repetition.sub),
        HirKind::Capture(capture) => has_line_end(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(has_line_end),
    }
}

/// Result in the making.
struct Made<'t> {
    path: &'t NotePath,
    text: &'t str,
    /// First line end of the text.
    line_end: Option<&'t str>,
    made: String,
    most: usize,
    /// Offset up to which the old text was copied or replaced.
    taken: usize,
    count: usize,
    stopped: &'t dyn Fn() -> bool,
    until: Instant,
}

impl Made<'_> {
    /// Begins a match.
    fn begin(&mut self, at: usize) -> Result<(), Error> {
        self.look()?;
        self.push(&self.text[self.taken..at])
    }

    /// Ends a match after its replacement.
    fn end(&mut self, at: usize) {
        self.taken = at;
        self.count += 1;
    }

    fn push(&mut self, text: &str) -> Result<(), Error> {
        let bytes = self.made.len() + text.len();
        if bytes > self.most {
            let (path, most) = (self.path.to_string(), self.most as u64);
            return Err(Error::TooLarge { path, bytes: bytes as u64, most });
        }
        self.made.push_str(text);
        Ok(())
    }

    fn look(&self) -> Result<(), Error> {
        if (self.stopped)() {
            return Err(Error::Cancelled);
        }
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(self.too_slow(format!(
                "after {} s, {} of {} bytes were searched",
                PATIENCE.as_secs(),
                self.taken,
                self.text.len()
            ))),
        }
    }

    fn too_slow(&self, why: String) -> Error {
        Error::PatternTooSlow { path: self.path.to_string(), why }
    }
}
