//! Locates the front matter block in a note.

use std::ops::Range;

use super::{MAX_BYTES, MalformedFrontMatter};

const FENCE: &str = "---";

/// Byte ranges of the front matter in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontMatterBlock {
    /// Whole block, both fences with their line ends.
    pub(crate) whole: Range<usize>,
    /// Text between the fences.
    pub(crate) inside: Range<usize>,
    /// Line end, `"\n"` or `"\r\n"`, as after the first fence.
    pub(crate) line_end: &'static str,
}

impl FrontMatterBlock {
    pub(crate) fn yaml<'t>(&self, text: &'t str) -> &'t str {
        &text[self.inside.clone()]
    }
}

/// Offset of the text after a byte order mark.
pub(crate) fn begin(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

/// Finds the block. A text whose first line is not `---` has none.
///
/// # Errors
/// Position of a block that is never closed, or is too large.
pub(crate) fn locate(text: &str) -> Result<Option<FrontMatterBlock>, MalformedFrontMatter> {
    let start = begin(text);
    let mut lines = text[start..].split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else { return Ok(None) };
    let line_end = if first.ends_with("\r\n") { "\r\n" } else { "\n" };
    let inside = start + first.len();
    let mut at = inside;
    for line in lines {
        if is_fence(line) {
            let why = format!("it has more than {MAX_BYTES} bytes");
            if at - inside > MAX_BYTES {
                return Err(MalformedFrontMatter { line: 1, column: 1, why });
            }
            let (whole, inside) = (start..at + line.len(), inside..at);
            return Ok(Some(FrontMatterBlock { whole, inside, line_end }));
        }
        at += line.len();
    }
    let why = "a first line `---` opens front matter, and no later line `---` closes it".to_owned();
    Err(MalformedFrontMatter { line: 1, column: 1, why })
}

/// Text after the front matter, and its offset. Without a closed block, all of it.
pub(crate) fn body(text: &str) -> (usize, &str) {
    let at = match locate(text) {
        Ok(Some(block)) => block.whole.end,
        _ => begin(text),
    };
    (at, &text[at..])
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == FENCE && line.starts_with(FENCE)
}
