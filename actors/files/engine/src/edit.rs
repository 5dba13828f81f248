//! Replacing texts in a file: all edits or none, on the state of the file that was read.

use std::io::Read;

use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, PlacePath,
    error::failed,
    line_ends::{self, Search},
    read::{not_text, open},
    write::{FileVersion, WriteError, replace},
};

/// Size in bytes of a file that is edited, and of what becomes of it.
pub const MAX_EDIT_BYTES: u64 = 16 * 1024 * 1024;
/// Times that a file is read again because another program changed it.
const MOST_TRIES: usize = 5;

/// Occurrences of a text that are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrences {
    /// The only one; several are refused.
    Only,
    /// The first.
    First,
    /// Every one.
    All,
}

/// Edit of one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextEdit {
    /// Which occurrences.
    pub which: Occurrences,
    /// Exact text; not empty.
    pub old: String,
    /// Text in its place.
    pub new: String,
}

/// Makes all edits, each on what the one before left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditFileText {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Edits, in their order.
    pub edits: Vec<TextEdit>,
    /// State that the file must still be in, as returned by [`EditPreview`].
    pub expected: Option<FileVersion>,
}

/// Outcome of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditOutcome {
    /// Size of the file now.
    pub size_bytes: u64,
    /// Number of occurrences that the last edit found.
    pub occurrences: u64,
}

/// Tells what edits would make of a file, which stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditPreview {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Edits, in their order.
    pub edits: Vec<TextEdit>,
}

/// Text of a file after edits that were not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedText {
    /// Whole text.
    pub text: String,
    /// State of the file that it is made from.
    pub version: FileVersion,
}

/// # Errors
/// `NoMatch` and `ManyMatches` with the edit's number, `NotText`, `TooLarge`, `Contended`, and as for
/// reading and writing; the file is as it was.
pub(crate) fn edit(root: &FileRoot, asked: &EditFileText) -> Result<EditOutcome, FileError> {
    let path = root.path(&asked.path)?;
    for _ in 0..MOST_TRIES {
        let (EditedText { text, version }, occurrences) = edited(root, &path, &asked.edits)?;
        if asked.expected.is_some_and(|expected| expected != version) {
            break;
        }
        match replace(root, &path, text.as_bytes(), None, Some(version)) {
            Ok(_) => return Ok(EditOutcome { size_bytes: text.len() as u64, occurrences }),
            Err(WriteError::Changed) => {}
            Err(WriteError::Failed(error)) => return Err(error),
        }
    }
    let message = format!("`{path}` was changed by others while it was edited");
    Err(FileError::new(FileErrorKind::Contended, message))
}

/// # Errors
/// As [`edit`].
pub(crate) fn preview(root: &FileRoot, asked: &EditPreview) -> Result<EditedText, FileError> {
    Ok(edited(root, &root.path(&asked.path)?, &asked.edits)?.0)
}

/// Text of a file after edits, and the number of occurrences that the last edit found.
fn edited(
    root: &FileRoot,
    path: &PlacePath,
    edits: &[TextEdit],
) -> Result<(EditedText, u64), FileError> {
    let (file, metadata) = open(root, path)?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_EDIT_BYTES + 1).read_to_end(&mut bytes);
    let size = read.map_err(|error| failed(&error, path))? as u64;
    within(path, size)?;
    let text = String::from_utf8(bytes).map_err(|_| not_text(path, size))?;
    let (text, occurrences) = apply(path, text, edits)?;
    Ok((EditedText { text, version: FileVersion::of(&metadata) }, occurrences))
}

pub(crate) fn within(path: &PlacePath, size: u64) -> Result<(), FileError> {
    if size > MAX_EDIT_BYTES {
        let message = format!("`{path}` has or would have more than {MAX_EDIT_BYTES} bytes");
        return Err(FileError::new(FileErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Makes the edits in a text. Returns it, and the number of occurrences that the last edit found.
fn apply(
    path: &PlacePath,
    mut text: String,
    edits: &[TextEdit],
) -> Result<(String, u64), FileError> {
    let mut occurrences = 0;
    let end_of_file = line_ends::of(&text).next().map(str::to_owned);
    for (number, edit) in (1_u64..).zip(edits) {
        let refuse = |kind, what: &str| {
            let message = format!("the text of edit {number} {what} in `{path}`");
            FileError { edit: Some(number), ..FileError::new(kind, message) }
        };
        if edit.old.is_empty() {
            return Err(refuse(FileErrorKind::NoMatch, "is empty, and occurs everywhere"));
        }
        let search = Search::of(&text, &edit.old);
        occurrences = search.found().count() as u64;
        if occurrences == 0 {
            return Err(refuse(FileErrorKind::NoMatch, "does not occur"));
        }
        if occurrences > 1 && edit.which == Occurrences::Only {
            let error = refuse(FileErrorKind::ManyMatches, &format!("occurs {occurrences} times"));
            return Err(FileError { occurrences: Some(occurrences), ..error });
        }
        let times = if edit.which == Occurrences::All { occurrences } else { 1 };
        let (mut made, mut from) = (String::new(), 0);
        for found in search.found().take(times as usize) {
            made.push_str(&text[from..found.start]);
            from = found.end;
            made.push_str(&search.replacement(&found, &edit.new, end_of_file.as_deref()));
            // Each replacement may be longer than the occurrence.
            within(path, made.len() as u64)?;
        }
        made.push_str(&text[from..]);
        within(path, made.len() as u64)?;
        text = made;
    }
    Ok((text, occurrences))
}
