//! Replacing texts in a file: all edits or none, on the state of the file that was read.

use std::io::Read;

use hivekeep_kernel::{Layer, ToolError};

use super::{
    failed,
    read::{not_text, open},
    write::{FileVersion, WriteError, replace},
};
use crate::{codes, place_path::PlacePath, places::Place};

/// Size in bytes of a file that is edited, and of what becomes of it.
pub(crate) const MAX_EDIT_BYTES: u64 = 16 * 1024 * 1024;
/// Times that a file is read again because another program changed it.
const MOST_TRIES: usize = 5;

/// Occurrences of a text that are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occurrences {
    /// The only one; several are refused.
    Only,
    /// The first.
    First,
    /// Each.
    All,
}

/// Edit of one text.
pub(crate) struct TextEdit {
    pub(crate) which: Occurrences,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Outcome of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EditOutcome {
    /// Size of the file now.
    pub(crate) size_bytes: u64,
    /// Number of occurrences that the last edit found.
    pub(crate) occurrences: u64,
}

/// Makes all edits, each on what the one before left.
///
/// # Errors
/// `no_match` and `many_matches` with the edit's number, `not_utf8`, `too_large`, `file_contended`, and as
/// for reading and writing; the file is as it was.
pub(crate) fn edit(
    place: &Place,
    path: &PlacePath,
    edits: &[TextEdit],
) -> Result<EditOutcome, ToolError> {
    for _ in 0..MOST_TRIES {
        // Before anything is read: a place for reading says so.
        let root = place.writable()?;
        let (file, metadata) = open(root, path)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_EDIT_BYTES + 1).read_to_end(&mut bytes);
        let size = read.map_err(|error| failed(&error, path))? as u64;
        within(path, size)?;
        let text = String::from_utf8(bytes).map_err(|_| not_text(path, size))?;
        let (text, occurrences) = apply(path, text, edits)?;
        match replace(place, path, text.as_bytes(), None, Some(FileVersion::of(&metadata))) {
            Ok(_) => return Ok(EditOutcome { size_bytes: text.len() as u64, occurrences }),
            Err(WriteError::Changed) => {}
            Err(WriteError::Failed(error)) => return Err(error),
        }
    }
    let message = format!("`{path}` was changed {MOST_TRIES} times while it was edited");
    Err(ToolError::new(Layer::Actor, codes::FILE_CONTENDED, message).retryable())
}

fn within(path: &PlacePath, size: u64) -> Result<(), ToolError> {
    if size > MAX_EDIT_BYTES {
        let message = format!("`{path}` has or would have more than {MAX_EDIT_BYTES} bytes");
        return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message));
    }
    Ok(())
}

/// Makes the edits in a text. Returns it, and the number of occurrences that the last edit found.
fn apply(
    path: &PlacePath,
    mut text: String,
    edits: &[TextEdit],
) -> Result<(String, u64), ToolError> {
    let mut occurrences = 0;
    for (number, edit) in (1_u64..).zip(edits) {
        occurrences = text.matches(&edit.old).count() as u64;
        let refuse = |code, what: String, next: &str| {
            let message = format!("the text of edit {number} {what} in `{path}`");
            ToolError::new(Layer::Actor, code, message).next(next).detail("edit", number)
        };
        if occurrences == 0 {
            let next = "read the file and give the text exactly as it stands there";
            return Err(refuse(codes::NO_MATCH, "does not occur".to_owned(), next));
        }
        if occurrences > 1 && edit.which == Occurrences::Only {
            let next = "give more of the text around the place that is meant";
            let error = refuse(codes::MANY_MATCHES, format!("occurs {occurrences} times"), next);
            return Err(error.detail("occurrences", occurrences));
        }
        let times = if edit.which == Occurrences::All { occurrences } else { 1 };
        // Before it is made: each occurrence may grow.
        let left = text.len() as u64 - times * edit.old.len() as u64;
        within(path, left.saturating_add(times.saturating_mul(edit.new.len() as u64)))?;
        text = text.replacen(&edit.old, &edit.new, times as usize);
    }
    Ok((text, occurrences))
}
