//! Reading a range of the lines of a text file.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};

use crate::{
    FileError, FileErrorKind, FileRoot, PlacePath, Stop,
    error::failed,
    read::{not_text, open},
};

/// Size of a line that is told; the rest of it is cut.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Size of all lines that are told.
pub(crate) const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Size of what is read for counting the lines behind the range.
const MAX_COUNTED_BYTES: u64 = 64 * 1024 * 1024;

/// Reads lines by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLines {
    /// File.
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
fn begins_binary(file: &mut impl Read) -> std::io::Result<bool> {
    let mut head = Vec::new();
    file.take(8 * 1024).read_to_end(&mut head)?;
    Ok(head.contains(&0))
}

/// Reads one line, of which `keep` bytes are kept: the number of bytes read, and of those cut off.
fn next_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    keep: usize,
) -> std::io::Result<(u64, u64)> {
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
fn count(reader: &mut impl BufRead, stop: Stop<'_>) -> std::io::Result<Option<u64>> {
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
