//! Replacing text in a file.

use std::io::Read;
use std::path::Path;

use hivekeep_protocol::{EditFile, EditFileReply, GuestCode, GuestError, limits};

use super::temp::FileReplacement;
use super::{io_error, off_thread, path};
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
    let run_dir = cx.agent.settings.run_dir.clone();
    off_thread(move || edit(&asked, &run_dir)).await
}

fn edit(asked: &EditFile, run_dir: &Path) -> Result<EditFileReply, GuestError> {
    let path = path::absolute(&asked.path)?;
    let name = &asked.path;
    let refuse = |code, why: &str| GuestError::new(code, format!("{name}: {why}"));
    let (file, meta) = path::open_regular(&path)?;
    if meta.len() > limits::MAX_EDIT_BYTES {
        return Err(refuse(GuestCode::TooLarge, "is too large to edit"));
    }
    let mut bytes = Vec::with_capacity(meta.len().try_into().unwrap_or(0));
    let read = file.take(limits::MAX_EDIT_BYTES + 1).read_to_end(&mut bytes);
    if read.map_err(|error| io_error(&error, name))? as u64 > limits::MAX_EDIT_BYTES {
        return Err(refuse(GuestCode::TooLarge, "is too large to edit"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse(GuestCode::NotUtf8, "is not UTF-8"))?;
    let occurrences = text.matches(&asked.old_string).count() as u64;
    if occurrences == 0 {
        return Err(refuse(GuestCode::NoMatch, "the text to replace does not occur"));
    }
    let replacements = if asked.replace_all { occurrences } else { 1 };
    let write = |replacement: &mut FileReplacement| {
        let mut rest = text.as_str();
        for _ in 0..replacements {
            let (before, after) = rest.split_once(&asked.old_string).unwrap_or((rest, ""));
            replacement.append(&[before.as_bytes()])?;
            replacement.append(&[asked.new_string.as_bytes()])?;
            rest = after;
        }
        replacement.append(&[rest.as_bytes()])
    };
    let mut replacement = FileReplacement::begin(&path, 0, run_dir)?;
    write(&mut replacement)
        .and_then(|()| replacement.commit(None))
        .map_err(|error| io_error(&error, name))?;
    Ok(EditFileReply { replacements, occurrences })
}
