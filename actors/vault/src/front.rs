//! Front matter editor: the YAML between two lines of `---` that a note may begin with.
//!
//! ```text
//!  text ── block::locate ──► FrontMatterBlock ── tree::parse ──► Mapping ── values
//!                                                                   │
//!  text ◄── edit: cut and insert at the entry's place ◄─────────────┘
//! ```
//! An edit replaces the text of one entry and nothing else. The result is parsed again: unless it
//! has the intended value, and every other key its old one, the edit is refused.

mod block;
mod edit;
mod emit;
mod list;
mod resolve;
#[cfg(test)]
mod tests;
mod tree;

use serde_json::{Map, Value};

pub(crate) use block::{FrontMatterBlock, begin, body, locate};
pub(crate) use edit::{delete, set};
pub(crate) use list::{add_tag, fold, plain, remove_tag, tags_of};

/// Maximum size of a block that is parsed, in bytes. A note's properties are a screen or two.
const MAX_BYTES: usize = 256 * 1024;

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
