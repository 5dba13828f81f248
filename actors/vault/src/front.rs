//! Front matter editor: the YAML between two lines of `---` that a note may begin with.
//!
//! ```text
//!  text ── locate ─────────► FrontMatterBlock ── tree::parse ──► Mapping ── values
//!                                                                   │
//!  text ◄── edit: cut and insert at the entry's place ◄─────────────┘
//! ```
//! An edit replaces the text of one entry and nothing else. The result is parsed again: unless it
//! has the intended value, and every other key its old one, the edit is refused.

mod edit;
mod list;
#[cfg(test)]
mod tests;
mod tree;
mod yaml;

use std::ops::Range;

use serde_json::{Map, Value};

pub(crate) use edit::{delete, set};
pub(crate) use list::{add_tag, fold, plain, remove_tag, tags_of};

/// Maximum size of a block that is parsed, in bytes. A note's properties are a screen or two.
const MAX_BYTES: usize = 256 * 1024;
const FENCE: &str = "---";

/// Position and cause of a front matter error. Lines and columns are the note's, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct MalformedFrontMatter {
    /// Line of the note.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
    /// Reason for people.
    pub why: String,
}

/// Parses a note's front matter; empty without one.
///
/// # Errors
/// Position of the error, where it is not a YAML mapping.
pub fn read(text: &str) -> Result<Map<String, Value>, MalformedFrontMatter> {
    Ok(parsed(text)?.map(|(_, mapping)| mapping.values()).unwrap_or_default())
}

fn parsed(text: &str) -> Result<Option<(FrontMatterBlock, tree::Mapping)>, MalformedFrontMatter> {
    let Some(block) = locate(text)? else { return Ok(None) };
    let mapping = tree::parse(block.yaml(text))?;
    Ok(Some((block, mapping)))
}

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
