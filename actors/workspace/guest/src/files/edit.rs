//! Replacing text in a file, by the file engine: edits of one file by any tool wait for one another.

use hivekeep_file_engine::{
    self as engine, EditFileText, FileError, FileErrorKind, FileOutcome, FileRoot, Occurrences,
    TextEdit,
};
use hivekeep_protocol::{EditFile, EditFileReply, GuestCode, GuestError};

use super::{off_thread, path};
use crate::session::call::RequestContext;

/// Answers [`EditFile`].
///
/// # Errors
/// `Invalid` for an empty text to find, `NoMatch`, `NotUtf8`, `TooLarge`, and as
/// for reading and writing.
pub async fn run(cx: &RequestContext, asked: EditFile) -> Result<EditFileReply, GuestError> {
    if asked.old_string.is_empty() {
        return Err(GuestError::new(GuestCode::Invalid, "the text to find is empty"));
    }
    path::absolute(&asked.path)?;
    let root = cx.agent.files.root();
    off_thread(move || edit(&root, asked)).await
}

fn edit(root: &FileRoot, asked: EditFile) -> Result<EditFileReply, GuestError> {
    let EditFile { path, old_string: old, new_string: new, replace_all } = asked;
    let which = if replace_all { Occurrences::All } else { Occurrences::First };
    let edits = vec![TextEdit { which, old, new }];
    let edit = EditFileText { path, edits, expected: None };
    match engine::run(root, &edit.into(), &|| false).map_err(refused)? {
        FileOutcome::EditFileText(done) => {
            let replacements = if replace_all { done.occurrences } else { 1 };
            Ok(EditFileReply { replacements, occurrences: done.occurrences })
        }
        _ => Err(GuestError::new(GuestCode::Internal, "the outcome of another operation")),
    }
}

fn refused(error: FileError) -> GuestError {
    use FileErrorKind as Kind;
    let code = match error.kind {
        Kind::NotFound => GuestCode::NotFound,
        Kind::PermissionDenied => GuestCode::PermissionDenied,
        Kind::NotADirectory => GuestCode::NotADirectory,
        Kind::IsADirectory => GuestCode::IsADirectory,
        Kind::NoSpace => GuestCode::NoSpace,
        Kind::TooLarge => GuestCode::TooLarge,
        Kind::NotText => GuestCode::NotUtf8,
        Kind::NoMatch => GuestCode::NoMatch,
        Kind::Contended => GuestCode::Busy,
        Kind::InvalidPath | Kind::Outside | Kind::NotAFile => GuestCode::Invalid,
        _ => GuestCode::Io,
    };
    GuestError::new(code, error.message)
}
