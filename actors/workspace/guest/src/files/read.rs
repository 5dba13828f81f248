//! Download.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use hivekeep_protocol::{FileRead, FileReadDone, GuestError, Stream};
use rustix::buffer::spare_capacity;

use super::{io_error, off_thread, path};
use crate::session::call::CallCx;
use crate::session::outbox::Chunk;

/// Chunks read in one visit to the disk.
const CHUNKS_AT_ONCE: usize = 4;

/// Answers [`FileRead`] after the content.
///
/// # Errors
/// `IsADirectory`; `Invalid` for devices, pipes and sockets; as open(2) and read(2);
/// `Cancelled`.
pub async fn run(cx: &CallCx, asked: FileRead) -> Result<FileReadDone, GuestError> {
    let name = asked.path.clone();
    let path = path::absolute(&asked.path)?;
    let (mut file, meta) = off_thread(move || path::open_regular(&path)).await?;
    let (mut offset, mut left) = (asked.offset, asked.limit.unwrap_or(u64::MAX));
    let mut sent_bytes = 0;
    while left > 0 {
        let (back, read) = off_thread(move || {
            let read = read_chunks(&file, offset, left);
            (file, read)
        })
        .await;
        file = back;
        let chunks = read.map_err(|error| io_error(&error, &name))?;
        if chunks.is_empty() {
            break;
        }
        for chunk in chunks {
            let bytes = chunk.len() as u64;
            cx.send(Stream::Content, chunk).await?;
            (offset, left, sent_bytes) = (offset + bytes, left - bytes, sent_bytes + bytes);
        }
    }
    Ok(FileReadDone { sent_bytes, size_bytes: meta.size(), mode: meta.mode() & 0o7777 })
}

/// Empty at the end of the file.
fn read_chunks(file: &File, mut offset: u64, mut left: u64) -> io::Result<Vec<Chunk>> {
    let mut chunks = Vec::with_capacity(CHUNKS_AT_ONCE);
    while chunks.len() < CHUNKS_AT_ONCE && left > 0 {
        let mut chunk = Chunk::new();
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(Chunk::CAPACITY);
        let read = fill(file, &mut chunk, wanted, offset)?;
        if read == 0 {
            break;
        }
        (offset, left) = (offset + read as u64, left - read as u64);
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn fill(file: &File, chunk: &mut Chunk, wanted: usize, offset: u64) -> io::Result<usize> {
    let read = loop {
        match rustix::io::pread(file, spare_capacity(chunk.buffer()), offset) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?,
        }
    };
    chunk.truncate(read.min(wanted));
    Ok(chunk.len())
}
