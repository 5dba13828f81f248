//! Download.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use bytes::Bytes;
use hivekeep_protocol::{GuestError, ReadFile, ReadFileReply, Stream};
use rustix::io::Errno;

use super::append::DIRECT_FROM_BYTES;
use super::{io_error, off_thread, path};
use crate::session::call::RequestContext;
use crate::session::payload::ALIGNMENT;
use crate::sys::{cached, read};

/// Read in one visit to the disk: a visit costs two changes of threads.
const AT_ONCE_BYTES: usize = 1024 * 1024;

/// Read beyond the size that a file had when it was opened.
const SMALL_BYTES: u64 = 16 * 1024;

/// Answers [`ReadFile`] after the content. The next part is read while one is sent.
///
/// # Errors
/// `IsADirectory`; `Invalid` for devices, pipes and sockets; as open(2) and read(2);
/// `Cancelled`.
pub async fn run(cx: &RequestContext, asked: ReadFile) -> Result<ReadFileReply, GuestError> {
    let name = asked.path.clone();
    let path = path::absolute(&asked.path)?;
    let (file, meta) = off_thread(move || path::open_regular(&path)).await?;
    let file = Arc::new(Reading::new(file, meta.size()));
    let part = |offset, left| {
        let file = file.clone();
        off_thread(move || file.part(offset, left))
    };
    let (mut offset, mut left) = (asked.offset, asked.limit.unwrap_or(u64::MAX));
    let mut sent_bytes = 0;
    let mut content = part(offset, left).await.map_err(|error| io_error(&error, &name))?;
    while !content.is_empty() {
        let bytes = content.len() as u64;
        (offset, left, sent_bytes) = (offset + bytes, left - bytes, sent_bytes + bytes);
        let (sent, next) = tokio::join!(cx.send(Stream::Content, content), part(offset, left));
        sent?;
        content = next.map_err(|error| io_error(&error, &name))?;
    }
    Ok(ReadFileReply { sent_bytes, size_bytes: meta.size(), mode: meta.mode() & 0o7777 })
}

/// A file to be read from memory where it is there, and else past the page cache: a
/// large file does not push others out of a small guest's memory.
struct Reading {
    cached: File,
    size_bytes: u64,
    /// The same file opened with `O_DIRECT`, if it is large enough and the file system takes that.
    direct: Option<File>,
}

impl Reading {
    fn new(cached: File, size_bytes: u64) -> Self {
        let anew = || {
            let path = format!("/proc/self/fd/{}", cached.as_raw_fd());
            File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()
        };
        let direct = if size_bytes >= DIRECT_FROM_BYTES { anew() } else { None };
        Self { cached, size_bytes, direct }
    }

    /// Empty at the end of the file.
    fn part(&self, offset: u64, left: u64) -> io::Result<Bytes> {
        // Some files of the kernel's have content and no size.
        let expected = self.size_bytes.saturating_sub(offset).saturating_add(SMALL_BYTES);
        let wanted = usize::try_from(left.min(expected)).unwrap_or(usize::MAX).min(AT_ONCE_BYTES);
        let mut bytes: Vec<u8> = Vec::with_capacity(wanted + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT) % ALIGNMENT;
        bytes.resize(start, 0);
        while bytes.len() < start + wanted {
            let at = offset + (bytes.len() - start) as u64;
            let missing = start + wanted - bytes.len();
            match self.some(&mut bytes, missing, at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Bytes::from(bytes).slice(start..))
    }

    fn some(&self, bytes: &mut Vec<u8>, most: usize, at: u64) -> Result<usize, Errno> {
        // Refused for what is no whole number of blocks.
        if let Some(direct) = &self.direct
            && !self.is_cached(at, most as u64)
            && let Ok(read @ 1..) = read::append(direct, bytes, most, at)
        {
            return Ok(read);
        }
        read::append(&self.cached, bytes, most, at)
    }

    fn is_cached(&self, at: u64, len: u64) -> bool {
        let page = ALIGNMENT as u64;
        // A kernel that does not tell reads as it thinks best.
        cached::pages(&self.cached, at, len).map_or(true, |pages| pages >= len / page)
    }
}
