//! Scan window: the amount of text that a pattern is shown at once.
//!
//! Nothing stops the regex engine within a search, and a search takes up to one step for each state
//! of the pattern and each byte of the text. So a long text is shown in windows, as long as the
//! pattern's size allows, and the clock is checked between them.

use regex_automata::nfa::thompson::{Config, NFA, WhichCaptures};
use regex_syntax::hir::Hir;

use crate::Error;

/// Maximum memory of a compiled pattern, and of the caches of its search.
pub(crate) const PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of steps of one search: some seconds with the slowest engine.
const STEPS: usize = 1 << 30;

/// Maximum number of bytes that a pattern is shown at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanWindow {
    pub(crate) most: usize,
}

impl ScanWindow {
    /// Window for a pattern of which `groups` groups are reported; the engine keeps each per state.
    ///
    /// # Errors
    /// [`Error::Pattern`] if the pattern is too large.
    pub(crate) fn of(pattern: &Hir, groups: usize) -> Result<Self, Error> {
        let config = Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES))
            .which_captures(WhichCaptures::Implicit);
        let nfa = NFA::compiler().configure(config).build_from_hir(pattern);
        let states = nfa.map_err(|error| Error::Pattern(error.to_string()))?.states().len();
        Ok(Self { most: (STEPS / (states * (groups + 1)).max(1)).max(1) })
    }

    /// End of the window that begins at a line's start: the text's end or the end of a line. `None`
    /// if that line alone is too long.
    pub(crate) fn end(self, text: &[u8], from: usize) -> Option<usize> {
        if text.len() - from <= self.most {
            return Some(text.len());
        }
        let window = &text[from..from + self.most];
        memchr::memrchr(b'\n', window).map(|newline| from + newline + 1)
    }

    /// Message that says why a text of so many bytes is not searched.
    pub(crate) fn refusal(self, bytes: usize) -> String {
        let most = self.most;
        format!("the pattern is too large for {bytes} bytes without a line's end: {most} at most")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_lines_and_the_shorter_the_larger_the_pattern_is() {
        let of = |pattern: &str| ScanWindow::of(&regex_syntax::parse(pattern).unwrap(), 1).unwrap();
        let (small, large) = (of("a"), of("[ab]{1000}"));
        assert!(small.most > 100 * large.most && large.most > 100_000, "{small:?} {large:?}");
        let four = ScanWindow { most: 4 };
        let ends = |text: &str| {
            let mut ends = vec![0];
            while ends[ends.len() - 1] < text.len() {
                ends.push(four.end(text.as_bytes(), ends[ends.len() - 1])?);
            }
            Some(ends)
        };
        assert_eq!(ends("a\nb\nc\nd"), Some(vec![0, 4, 7]));
        assert_eq!(ends("abc\n\n\nab"), Some(vec![0, 4, 8]));
        assert_eq!(ends("a\nabcd\n"), None, "a line of five bytes");
        assert!(ScanWindow::of(&regex_syntax::parse("(x{1000}){1000}").unwrap(), 1).is_err());
    }
}
