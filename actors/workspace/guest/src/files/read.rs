//! Download.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use bytes::Bytes;
use hivekeep_protocol::{FileRead, FileReadDone, GuestError, Stream};
use rustix::buffer::spare_capacity;

use super::{io_error, off_thread, path};
use crate::session::call::CallCx;

/// Read in one visit to the disk: a visit costs two changes of threads.
const AT_ONCE_BYTES: usize = 1024 * 1024;

/// Answers [`FileRead`] after the content. The next part is read while one is sent.
///
/// # Errors
/// `IsADirectory`; `Invalid` for devices, pipes and sockets; as open(2) and read(2);
/// `Cancelled`.
pub async fn run(cx: &CallCx, asked: FileRead) -> Result<FileReadDone, GuestError> {
    let name = asked.path.clone();
    let path = path::absolute(&asked.path)?;
    let (file, meta) = off_thread(move || path::open_regular(&path)).await?;
    let file = Arc::new(file);
    let part = |offset, left| {
        let file = file.clone();
        off_thread(move || read_part(&file, offset, left))
    };
    let (mut offset, mut left) = (asked.offset, asked.limit.unwrap_or(u64::MAX));
    let mut sent_bytes = 0;
    let mut content = part(offset, left).await.map_err(|error| io_error(&error, &name))?;
    while !content.is_empty() {
        let bytes = content.len() as u64;
        (offset, left, sent_bytes) = (offset + bytes, left - bytes, sent_bytes + bytes);
        let (sent, next) =
            tokio::join!(cx.send(Stream::Content, content), part(offset, left));
        sent?;
        content = next.map_err(|error| io_error(&error, &name))?;
    }
    Ok(FileReadDone { sent_bytes, size_bytes: meta.size(), mode: meta.mode() & 0o7777 })
}

/// Empty at the end of the file.
fn read_part(file: &File, offset: u64, left: u64) -> io::Result<Bytes> {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(AT_ONCE_BYTES);
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(wanted);
    Ok(bytes.into())
}
