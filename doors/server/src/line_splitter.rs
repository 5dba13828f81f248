//! A splitter of a stream of bytes into lines of bounded length. It reads nothing itself.

/// Capacity that the buffer keeps between two lines.
const KEPT_BYTES: usize = 64 * 1024;

/// Cuts a stream of bytes into lines, in one reused buffer.
#[derive(Debug)]
pub struct LineSplitter {
    line: Vec<u8>,
    /// `line` was handed out whole and starts anew with the next bytes.
    handed_out: bool,
    /// The rest of a line that was too long is being dropped.
    dropping: bool,
    max_bytes: usize,
}

/// Outcome of splitting off a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitOutcome {
    /// All bytes were taken; the line goes on.
    More,
    /// A line is whole: see [`LineSplitter::line`].
    Line,
    /// A line above the limit ended; it was dropped.
    TooLong,
}

impl LineSplitter {
    /// Lines of at most `max_bytes`, their end not counted.
    pub fn new(max_bytes: usize) -> Self {
        Self { line: Vec::new(), handed_out: false, dropping: false, max_bytes }
    }

    /// Takes bytes up to the end of the line; returns their number and the outcome.
    /// Empty lines are skipped.
    pub fn feed(&mut self, bytes: &[u8]) -> (usize, SplitOutcome) {
        if std::mem::take(&mut self.handed_out) {
            self.line.clear();
            // The memory of a long line is not kept for as long as the connection lives.
            self.line.shrink_to(KEPT_BYTES);
        }
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..newline.unwrap_or(bytes.len())];
        if self.line.len() + part.len() > self.max_bytes {
            self.dropping = true;
            self.line = Vec::new();
        }
        if !self.dropping {
            self.line.extend_from_slice(part);
        }
        let Some(at) = newline else { return (bytes.len(), SplitOutcome::More) };
        if std::mem::take(&mut self.dropping) {
            return (at + 1, SplitOutcome::TooLong);
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.handed_out = !self.line.is_empty();
        (at + 1, if self.handed_out { SplitOutcome::Line } else { SplitOutcome::More })
    }

    /// Bytes of a line that goes on.
    pub fn begun(&self) -> usize {
        if self.handed_out { 0 } else { self.line.len() }
    }

    /// True when the last bytes ended a line, which is still here.
    pub fn is_whole(&self) -> bool {
        self.handed_out
    }

    /// The line, taken out.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }

    /// The line that [`SplitOutcome::Line`] announced.
    pub fn line(&self) -> &[u8] {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn how_bytes_arrive_makes_no_difference(
            text in "[ab\\r\\n]{0,60}",
            cuts in proptest::collection::vec(1usize..9, 60),
            max_bytes in 1usize..12,
        ) {
            let cut = |pieces: &mut dyn Iterator<Item = usize>| {
                let (mut cutter, mut rest, mut seen) = (LineSplitter::new(max_bytes), text.as_bytes(), Vec::new());
                while !rest.is_empty() {
                    let piece = pieces.next().unwrap_or(rest.len()).min(rest.len());
                    let (taken, cut) = cutter.feed(&rest[..piece]);
                    rest = &rest[taken..];
                    match cut {
                        SplitOutcome::More => {}
                        SplitOutcome::Line => seen.push(Some(cutter.line().to_vec())),
                        SplitOutcome::TooLong => seen.push(None),
                    }
                }
                seen
            };
            let whole = cut(&mut std::iter::empty());
            proptest::prop_assert_eq!(&cut(&mut cuts.iter().copied()), &whole);
            proptest::prop_assert!(whole.iter().flatten().all(|line| line.len() <= max_bytes));
        }
    }
}
