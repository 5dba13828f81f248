//! Reading a range of a text file.

use std::io::{Read, Seek, SeekFrom};

use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use hivekeep_kernel::{Layer, ToolError};
use rustix::fs::OFlags;

use super::failed;
use crate::{codes, place_path::PlacePath};

/// Text of a range of a file.
pub(crate) struct ReadText {
    pub(crate) text: String,
    pub(crate) offset: u64,
    /// First byte after the text.
    pub(crate) next_offset: u64,
    pub(crate) size_bytes: u64,
}

/// Opens a regular file for reading. A pipe without a writer is not waited for.
///
/// # Errors
/// `not_a_file`, `is_a_directory`, and as [`failed`].
pub(crate) fn open(root: &Dir, path: &PlacePath) -> Result<(File, Metadata), ToolError> {
    let io = |error| failed(&error, path);
    // Looked at before it is opened: to open a device may do something.
    regular(&root.metadata(path.as_str()).map_err(io)?, path)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = root
        .open_with(path.as_str(), OpenOptions::new().read(true).custom_flags(flags))
        .map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    regular(&metadata, path)?;
    Ok((file, metadata))
}

/// Refuses what is not a file.
pub(crate) fn regular(metadata: &Metadata, path: &PlacePath) -> Result<(), ToolError> {
    let (code, what) = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => (codes::IS_A_DIRECTORY, "is a folder"),
        _ => (codes::NOT_A_FILE, "is a device, a pipe or a socket"),
    };
    Err(ToolError::new(Layer::Actor, code, format!("`{path}` {what}")))
}

/// Refuses what is not UTF-8 text.
pub(crate) fn not_text(path: &PlacePath, size_bytes: u64) -> ToolError {
    let message = format!("`{path}` is not UTF-8 text; it has {size_bytes} bytes");
    ToolError::new(Layer::Actor, codes::NOT_UTF8, message).detail("size_bytes", size_bytes)
}

/// Bytes of a range at least: what is left of a character that its begin cuts, and a whole one.
const LEAST_BYTES: u64 = 8;

/// Reads at most `limit` bytes from `offset` on, or [`LEAST_BYTES`], so that each range makes progress.
/// Characters that the edges cut are left out.
///
/// # Errors
/// `not_utf8` for bytes that are not text, and as [`open`].
pub(crate) fn text(
    root: &Dir,
    path: &PlacePath,
    offset: u64,
    limit: u64,
) -> Result<ReadText, ToolError> {
    let (mut file, metadata) = open(root, path)?;
    let io = |error| failed(&error, path);
    let size_bytes = metadata.len();
    let offset = offset.min(size_bytes);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    file.take(limit.max(LEAST_BYTES)).read_to_end(&mut bytes).map_err(io)?;
    let whole = offset + bytes.len() as u64 >= size_bytes;
    let begin = if offset == 0 {
        0
    } else {
        bytes.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count()
    };
    let text = match std::str::from_utf8(&bytes[begin..]) {
        Ok(text) => text,
        // A character that the end cuts.
        Err(error) if !whole && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[begin..begin + error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err(not_text(path, size_bytes)),
    };
    if text.contains('\0') {
        return Err(not_text(path, size_bytes));
    }
    let first = offset + begin as u64;
    Ok(ReadText {
        next_offset: first + text.len() as u64,
        text: text.to_owned(),
        offset: first,
        size_bytes,
    })
}
