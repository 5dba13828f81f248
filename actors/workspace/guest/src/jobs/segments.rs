//! Segmented log of one output stream: two files of equal size in turn, so that the last bytes are
//! kept and a reader finds them by their cursor.
//!
//! Segment `n` holds the bytes from `n` times the size on, as `stdout`, `stdout.1`, `stdout.2`, …;
//! of these the last two are there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hivekeep_protocol::Spool;

/// Looks at files that the writer exchanges meanwhile.
const LOOKS: usize = 4;

/// Path of a segment of a stream in its folder.
pub(super) fn path(folder: &Path, stream: &str, number: u64) -> PathBuf {
    folder.join(if number == 0 { stream.to_owned() } else { format!("{stream}.{number}") })
}

/// Reads what is kept from a cursor on, at most to the end of its segment. `total` is what is known
/// to have been written.
///
/// # Errors
/// When the folder or a file cannot be read.
pub(super) fn read(
    folder: &Path,
    stream: &str,
    segment_bytes: u64,
    from: u64,
    max: u64,
    total: u64,
) -> io::Result<Spool> {
    let mut look = 0;
    loop {
        look += 1;
        match part(folder, stream, segment_bytes.max(1), from, max, total) {
            // Dropped between the look and the opening.
            Err(error) if error.kind() == io::ErrorKind::NotFound && look < LOOKS => {}
            read => return read,
        }
    }
}

fn part(
    folder: &Path,
    stream: &str,
    segment_bytes: u64,
    from: u64,
    max: u64,
    total: u64,
) -> io::Result<Spool> {
    let numbers = numbers(folder, stream)?;
    let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else {
        return Ok(Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: total });
    };
    let end = last * segment_bytes + std::fs::metadata(path(folder, stream, *last))?.len();
    let from = from.clamp(first * segment_bytes, end);
    let spool = |bytes| Spool { from, bytes, kept_bytes: end, total_bytes: total.max(end) };
    if from == end {
        return Ok(spool(vec![]));
    }
    let file = File::open(path(folder, stream, from / segment_bytes))?;
    let at = from % segment_bytes;
    let wanted = file.metadata()?.len().saturating_sub(at).min(max);
    let mut bytes = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(spool(bytes))
}

/// Numbers of the segments that are there.
fn numbers(folder: &Path, stream: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(stream)) else { continue };
        match rest.strip_prefix('.') {
            None if rest.is_empty() => numbers.push(0),
            Some(number) => numbers.extend(number.parse::<u64>().ok()),
            None => {}
        }
    }
    Ok(numbers)
}
