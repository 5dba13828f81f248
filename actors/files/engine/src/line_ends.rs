//! Texts that are found and written with the line ends of the file, `\n` or `\r\n`, whichever were given.

use std::{borrow::Cow, ops::Range};

/// Search of a text in another: as it is given, or, where it does not occur so, with any line ends.
pub(crate) enum Search<'t> {
    /// As given.
    Given { text: &'t str, old: &'t str },
    /// Each `\r\n` of both taken as `\n`.
    AnyEnds { text: &'t str, unified: String, old: Cow<'t, str> },
}

impl<'t> Search<'t> {
    pub(crate) fn of(text: &'t str, old: &'t str) -> Self {
        let given = Self::Given { text, old };
        if given.found().next().is_some() || !old.contains('\n') {
            return given;
        }
        Self::AnyEnds { text, unified: text.replace("\r\n", "\n"), old: unify(old) }
    }

    /// Ranges of the occurrences, from the first on; none begins within a line end.
    pub(crate) fn found(&self) -> Box<dyn Iterator<Item = Range<usize>> + '_> {
        match self {
            Self::Given { text, old } => {
                let splits_end = |at: &usize| old.starts_with('\n') && text[..*at].ends_with('\r');
                let found = text.match_indices(old).map(|(at, _)| at);
                let whole = found.filter(move |at| !splits_end(at));
                Box::new(whole.map(|at| at..at + old.len()))
            }
            Self::AnyEnds { text, unified, old } => {
                let mut place = PlaceInText { text: text.as_bytes(), at: 0, unified_at: 0 };
                let found = unified.match_indices(&**old).map(|(at, _)| at);
                Box::new(found.map(move |at| place.go_to(at)..place.go_to(at + old.len())))
            }
        }
    }

    /// Whether the ends of the new text are meant as they are: the old one has some, and occurs with them.
    pub(crate) fn keeps_ends_of_new(&self) -> bool {
        matches!(self, Self::Given { old, .. } if old.contains('\n'))
    }
}

/// Place in a text, by its place in the text whose line ends are all `\n`.
struct PlaceInText<'t> {
    text: &'t [u8],
    at: usize,
    unified_at: usize,
}

impl PlaceInText<'_> {
    /// Goes on to a place that is not before this one.
    fn go_to(&mut self, unified_at: usize) -> usize {
        while self.unified_at < unified_at && self.at < self.text.len() {
            self.at += if self.text[self.at..].starts_with(b"\r\n") { 2 } else { 1 };
            self.unified_at += 1;
        }
        self.at
    }
}

fn unify(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Line ends of a text.
pub(crate) fn of(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| &line[line.strip_suffix("\r\n").map_or(line.len() - 1, str::len)..])
}

/// Line ends of the lines that a range is in.
pub(crate) fn of_lines<'t>(text: &'t str, range: &Range<usize>) -> impl Iterator<Item = &'t str> {
    let is_at_end = text[range.clone()].ends_with('\n');
    let rest = text[range.end..].find('\n').filter(|_| !is_at_end).map_or(0, |at| at + 1);
    of(&text[range.start..range.end + rest])
}

/// Appends a text with line ends: those of `ends` one by one, then the last of them again. Without any,
/// `otherwise`; without that, its own.
pub(crate) fn push<'t>(
    made: &mut String,
    new: &str,
    mut ends: impl Iterator<Item = &'t str>,
    otherwise: Option<&'t str>,
) {
    let mut end = otherwise;
    for line in new.split_inclusive('\n') {
        let Some(content) = line.strip_suffix('\n') else { return made.push_str(line) };
        end = ends.next().or(end);
        match end {
            Some(end) => {
                made.push_str(content.strip_suffix('\r').unwrap_or(content));
                made.push_str(end);
            }
            None => made.push_str(line),
        }
    }
}
