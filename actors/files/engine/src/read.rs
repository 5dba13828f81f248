//! Reading a range of a text file.

use std::io::{Read, Seek, SeekFrom};

use cap_std::fs::{File, Metadata, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, MAX_EDIT_BYTES, PlacePath, error::failed};

/// Bytes of a range at least: what is left of a character that its begin cuts, and a whole one.
const LEAST_BYTES: u64 = 8;

/// Reads a range of bytes, or a few more, so that each range makes progress. Characters that the edges
/// cut are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadText {
    /// File.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at most 16 MiB and one.
    pub limit: u64,
}

/// Text of a range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// Text.
    pub text: String,
    /// First byte of the text.
    pub offset: u64,
    /// First byte after the text.
    pub next_offset: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

/// Opens a regular file for reading. A pipe without a writer is not waited for.
///
/// # Errors
/// `NotAFile`, `IsADirectory`, and as [`failed`].
pub(crate) fn open(root: &FileRoot, path: &PlacePath) -> Result<(File, Metadata), FileError> {
    let io = |error| failed(&error, path);
    let real = root.followed(path)?;
    // Looked at before it is opened: to open a device may do something.
    regular(&root.dir().metadata(real.as_str()).map_err(io)?, path)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    let file = root.dir().open_with(real.as_str(), &options).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    regular(&metadata, path)?;
    Ok((file, metadata))
}

/// Refuses what is not a file.
pub(crate) fn regular(metadata: &Metadata, path: &PlacePath) -> Result<(), FileError> {
    let (kind, what) = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => (FileErrorKind::IsADirectory, "is a folder"),
        _ => (FileErrorKind::NotAFile, "is a device, a pipe or a socket"),
    };
    Err(FileError::new(kind, format!("`{path}` {what}")))
}

/// Refuses what is not UTF-8 text.
pub(crate) fn not_text(path: &PlacePath, size_bytes: u64) -> FileError {
    let message = format!("`{path}` is not UTF-8 text; it has {size_bytes} bytes");
    let error = FileError::new(FileErrorKind::NotText, message);
    FileError { size_bytes: Some(size_bytes), ..error }
}

/// Reads a range of bytes, whatever they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBytes {
    /// File.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at most 16 MiB.
    pub limit: u64,
}

/// Range of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Size of the file.
    pub size_bytes: u64,
}

/// Reads at most `limit` bytes of any content, from `offset` on.
///
/// # Errors
/// `NotAFile`, `IsADirectory`, and those of a path.
pub fn read_bytes(
    root: &FileRoot,
    path: &PlacePath,
    offset: u64,
    limit: u64,
) -> Result<ByteRange, FileError> {
    let (mut file, metadata) = open(root, path)?;
    let io = |error| failed(&error, path);
    let (mut bytes, size_bytes) = (Vec::new(), metadata.len());
    file.seek(SeekFrom::Start(offset.min(size_bytes))).map_err(io)?;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    Ok(ByteRange { bytes, size_bytes })
}

/// # Errors
/// As [`read_bytes`].
pub(crate) fn bytes(root: &FileRoot, asked: &ReadBytes) -> Result<ByteRange, FileError> {
    let path = root.path(&asked.path)?;
    read_bytes(root, &path, asked.offset, asked.limit.min(MAX_EDIT_BYTES))
}

/// # Errors
/// `NotText` for bytes that are not text, and as [`open`].
pub(crate) fn text(root: &FileRoot, asked: &ReadText) -> Result<TextRange, FileError> {
    let path = &root.path(&asked.path)?;
    let limit = asked.limit.clamp(LEAST_BYTES, MAX_EDIT_BYTES + 1);
    let ByteRange { bytes, size_bytes } = read_bytes(root, path, asked.offset, limit)?;
    let offset = asked.offset.min(size_bytes);
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
    Ok(TextRange {
        next_offset: first + text.len() as u64,
        text: text.to_owned(),
        offset: first,
        size_bytes,
    })
}
