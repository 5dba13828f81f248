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

/// Edit of one text that occurs exactly once.
pub(crate) struct TextEdit {
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Makes all edits, each on what the one before left. Returns the size of the file.
///
/// # Errors
/// `no_match` and `many_matches` with the edit's number, `not_utf8`, `too_large`, `file_contended`, and as
/// for reading and writing; the file is as it was.
pub(crate) fn edit(place: &Place, path: &PlacePath, edits: &[TextEdit]) -> Result<u64, ToolError> {
    for _ in 0..MOST_TRIES {
        // Before anything is read: a place for reading says so.
        let root = place.writable()?;
        let (file, metadata) = open(root, path)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_EDIT_BYTES + 1).read_to_end(&mut bytes);
        let size = read.map_err(|error| failed(&error, path))? as u64;
        within(path, size)?;
        let text = String::from_utf8(bytes).map_err(|_| not_text(path, size))?;
        let text = apply(path, text, edits)?;
        match replace(place, path, text.as_bytes(), Some(FileVersion::of(&metadata))) {
            Ok(_) => return Ok(text.len() as u64),
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

/// Makes the edits in a text.
fn apply(path: &PlacePath, mut text: String, edits: &[TextEdit]) -> Result<String, ToolError> {
    for (number, edit) in (1_u64..).zip(edits) {
        let mut found = text.match_indices(&edit.old).map(|(at, _)| at);
        let (first, others) = (found.next(), found.count());
        let refuse = |code, what: String, next: &str| {
            ToolError::new(
                Layer::Actor,
                code,
                format!("the text of edit {number} {what} in `{path}`"),
            )
            .next(next)
            .detail("edit", number)
        };
        let Some(at) = first else {
            let next = "read the file and give the text exactly as it stands there";
            return Err(refuse(codes::NO_MATCH, "does not occur".to_owned(), next));
        };
        if others > 0 {
            let next = "give more of the text around the place that is meant";
            let error = refuse(codes::MANY_MATCHES, format!("occurs {} times", others + 1), next);
            return Err(error.detail("occurrences", others as u64 + 1));
        }
        within(path, (text.len() - edit.old.len() + edit.new.len()) as u64)?;
        text.replace_range(at..at + edit.old.len(), &edit.new);
    }
    Ok(text)
}
