//! Texts that are found and written with the line ends of the file, `\n` or `\r\n`, whichever were given.

use std::{borrow::Cow, cell::Cell, ops::Range};

/// Search of a text in another: as it is given, or, where it does not occur so, with any line ends.
pub struct Search<'t> {
    text: &'t str,
    old: Cow<'t, str>,
    /// The text with each `\r\n` as `\n`, where that is searched.
    unified: Option<String>,
    /// Where the end of a line was looked for last, and where it is; a long line may have many occurrences.
    looked: Cell<(usize, usize)>,
}

impl<'t> Search<'t> {
    /// Search of `old` in `text`.
    pub fn of(text: &'t str, old: &'t str) -> Self {
        let given = Self { text, old: old.into(), unified: None, looked: Cell::new((1, 0)) };
        if given.found().next().is_some() || !old.contains('\n') {
            return given;
        }
        Self { old: unify(old), unified: Some(text.replace("\r\n", "\n")), ..given }
    }

    /// Ranges of the occurrences, from the first on; none begins within a line end.
    pub fn found(&self) -> Box<dyn Iterator<Item = Range<usize>> + '_> {
        let Self { text, old, unified, .. } = self;
        let at = unified.as_deref().unwrap_or(text).match_indices(&**old).map(|(at, _)| at);
        if unified.is_none() {
            let splits_end = |at: &usize| old.starts_with('\n') && text[..*at].ends_with('\r');
            let whole = at.filter(move |at| !splits_end(at));
            return Box::new(whole.map(|at| at..at + old.len()));
        }
        let mut place = PlaceInText { text: text.as_bytes(), at: 0, unified_at: 0 };
        Box::new(at.map(move |at| place.go_to(at)..place.go_to(at + old.len())))
    }

    /// A text in place of an occurrence, with the line ends of the lines there, then with `otherwise`. It
    /// stays as it is where the old one has line ends and occurs with them: they are meant.
    pub fn replacement<'n>(
        &self,
        found: &Range<usize>,
        new: &'n str,
        otherwise: Option<&str>,
    ) -> Cow<'n, str> {
        match self.unified.is_none() && self.old.contains('\n') {
            true => new.into(),
            false => with_ends(new, self.ends(found), otherwise),
        }
    }

    /// Line ends of the lines that a range is in.
    fn ends(&self, range: &Range<usize>) -> impl Iterator<Item = &'t str> {
        let within = &self.text[range.clone()];
        let last = if within.ends_with('\n') { None } else { self.end_behind(range.end) };
        of(within).chain(last)
    }

    fn end_behind(&self, place: usize) -> Option<&'t str> {
        let (from, mut end) = self.looked.get();
        if !(from..=end).contains(&place) {
            end = self.text[place..].find('\n').map_or(self.text.len(), |at| place + at);
            self.looked.set((place, end));
        }
        self.text.get(..=end).map(end_of)
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
pub fn of(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(end_of)
}

fn end_of(line: &str) -> &str {
    &line[line.strip_suffix("\r\n").map_or(line.len() - 1, str::len)..]
}

/// A text with line ends: those of `ends` one by one, then the last of them again. Without any, `otherwise`;
/// without that, its own.
pub fn with_ends<'n, 't>(
    new: &'n str,
    mut ends: impl Iterator<Item = &'t str>,
    otherwise: Option<&'t str>,
) -> Cow<'n, str> {
    if !new.contains('\n') {
        return new.into();
    }
    let mut end = otherwise;
    let mut made = String::with_capacity(new.len());
    for line in new.split_inclusive('\n') {
        let content = line.strip_suffix('\n').map(|it| it.strip_suffix('\r').unwrap_or(it));
        end = content.and_then(|_| ends.next()).or(end);
        match content.zip(end) {
            Some((content, end)) => made.extend([content, end]),
            None => made.push_str(line),
        }
    }
    made.into()
}
