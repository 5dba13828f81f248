//! Reading a range of a text file, by bytes or by lines.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use rustix::{
    fs::{Mode, OFlags, openat},
    path::Arg,
};
use serde::{Deserialize, Serialize};

use crate::{FileError, FileErrorKind, FileRoot, MAX_EDIT_BYTES, PlacePath, Stop, error::failed};

/// Bytes of a range at least: what is left of a character that its begin cuts, and a whole one.
const LEAST_BYTES: u64 = 8;

/// Reads a range of bytes, or a few more, so that each range makes progress. Characters that the edges
/// cut are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadText {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at most 16 MiB and one.
    pub limit: u64,
}

/// Text of a range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// Whole characters of the range, none of them NUL.
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

/// Opens a regular file by its name in a folder; `None` where something else stands. No link is followed, and a
/// pipe without a writer is not waited for.
///
/// # Errors
/// As open(2); a link is one.
pub fn open_file(folder: &Dir, name: impl Arg) -> io::Result<Option<(File, Metadata)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let file = File::from_std(file.into());
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
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
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at most 16 MiB.
    pub limit: u64,
}

/// Range of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// Bytes from the first that was asked for; fewer than asked where the file ends.
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

/// Size of a line that is told; the rest of it is cut.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Size of all lines that are told.
pub(crate) const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Size of what is read for counting the lines behind the range.
const MAX_COUNTED_BYTES: u64 = 64 * 1024 * 1024;

/// Reads lines by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLines {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Number of the first line, from 1.
    pub first: u64,
    /// Number of lines, at most; they have 256 KiB together.
    pub limit: u64,
}

/// Lines of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedLines {
    /// Lines without their ends; each with the number of its bytes that were cut off.
    pub lines: Vec<(String, u64)>,
    /// Number of lines behind the range; `None` where they were not counted for their size.
    pub left: Option<u64>,
    /// Size of the file.
    pub size_bytes: u64,
}

/// # Errors
/// `NotText` for a line that is not, `PastEnd` for a range behind the end, and as for opening.
pub(crate) fn lines(
    root: &FileRoot,
    asked: &ReadLines,
    stop: Stop<'_>,
) -> Result<NumberedLines, FileError> {
    let path = &root.path(&asked.path)?;
    let (mut file, metadata) = open(root, path)?;
    let io = |error| failed(&error, path);
    let size_bytes = metadata.len();
    if begins_binary(&mut file).map_err(io)? {
        return Err(not_text(path, size_bytes));
    }
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let (mut number, mut told, mut lines) = (1, 0, Vec::new());
    let mut line = Vec::new();
    while (lines.len() as u64) < asked.limit && told < MAX_TEXT_BYTES && !stop() {
        line.clear();
        let wanted = number >= asked.first;
        let kept = if wanted { MAX_LINE_BYTES } else { 0 };
        let (read, cut) = next_line(&mut reader, &mut line, kept).map_err(io)?;
        if read == 0 {
            break;
        }
        number += 1;
        if wanted {
            let text = text_of(&line, cut > 0).ok_or_else(|| not_text(path, size_bytes))?;
            told += text.len();
            let cut = cut + (line.len() - text.len()) as u64;
            lines.push((text.to_owned(), cut));
        }
    }
    if lines.is_empty() && asked.first > 1 {
        return Err(past_end(path, asked.first, number - 1));
    }
    let left = count(&mut reader, stop).map_err(io)?;
    Ok(NumberedLines { lines, left, size_bytes })
}

fn past_end(path: &PlacePath, first: u64, lines: u64) -> FileError {
    let message = format!("`{path}` has {lines} lines; line {first} is behind the last");
    FileError::new(FileErrorKind::PastEnd, message)
}

/// Whether there is a NUL where programs look for one.
fn begins_binary(file: &mut impl Read) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(8 * 1024).read_to_end(&mut head)?;
    Ok(head.contains(&0))
}

/// Reads one line, of which `keep` bytes are kept: the number of bytes read, and of those cut off.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, keep: usize) -> io::Result<(u64, u64)> {
    let (mut read, mut content) = (0, 0);
    loop {
        let buffer = reader.fill_buf()?;
        let end = memchr::memchr(b'\n', buffer);
        let used = end.map_or(buffer.len(), |at| at + 1);
        let part = &buffer[..end.unwrap_or(used)];
        line.extend_from_slice(&part[..part.len().min(keep - line.len())]);
        (read, content) = (read + used as u64, content + part.len() as u64);
        reader.consume(used);
        if used == 0 || end.is_some() {
            return Ok((read, content - line.len() as u64));
        }
    }
}

/// Text of a line, without a character that the cut tore.
fn text_of(line: &[u8], is_cut: bool) -> Option<&str> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&line[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

/// Number of lines that are left, the last without an end included.
fn count(reader: &mut impl BufRead, stop: Stop<'_>) -> io::Result<Option<u64>> {
    let (mut ends, mut bytes, mut open_end) = (0, 0_u64, false);
    loop {
        let buffer = reader.fill_buf()?;
        let Some(last) = buffer.last() else { return Ok(Some(ends + u64::from(open_end))) };
        open_end = *last != b'\n';
        ends += memchr::memchr_iter(b'\n', buffer).count() as u64;
        let used = buffer.len();
        reader.consume(used);
        bytes += used as u64;
        if bytes > MAX_COUNTED_BYTES || stop() {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileOperation, FileOutcome, run};

    #[test]
    fn bytes_come_in_ranges_whatever_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("f"), b"a\0\xffb").expect("writes");
        let root = FileRoot::folder(folder.path()).expect("opened");
        let read = |offset, limit| {
            let asked = ReadBytes { path: "f".to_owned(), offset, limit };
            let operation = FileOperation::from(asked);
            let outcome = run(&root, &operation, &|| false).expect("read");
            assert!(operation.accepts(&outcome));
            match outcome {
                FileOutcome::ReadBytes(range) => (range.bytes, range.size_bytes),
                _ => panic!("another outcome"),
            }
        };
        assert_eq!(read(0, 3), (b"a\0\xff".to_vec(), 4));
        assert_eq!(read(3, 9), (b"b".to_vec(), 4));
        assert_eq!(read(9, 9), (Vec::new(), 4));
        let asked = ReadBytes { path: "f".to_owned(), offset: 0, limit: 2 };
        let more = ByteRange { bytes: vec![0; 3], size_bytes: 4 };
        assert!(!FileOperation::from(asked).accepts(&FileOutcome::ReadBytes(more)));
    }
}
