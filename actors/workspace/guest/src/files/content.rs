//! Content of files: download, and upload of what is to be on the disk soon.
//!
//! What is received goes past the page cache, straight from where it was received, where the file system takes
//! that. The content of a large file is thus not copied once more, does not push other files out of a small
//! guest's memory, and is on the disk already when it is synced.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use bytes::Bytes;
use hivekeep_file_engine::Replacement;
use hivekeep_protocol::{
    GuestCode, GuestError, ReadFile, ReadFileReply, Stream, WriteFile, WriteFileReply, limits,
};
use rustix::fs::{FallocateFlags, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::operation::{panicked, start};
use super::{engine_error, io_error, off_thread};
use crate::as_user;
use crate::files;
use crate::session::call::{RequestContext, cancelled};
use crate::session::inflow::{ALIGNMENT, InflowBatch, Payload};
use crate::sys;

/// Read in one visit to the disk: a visit costs two changes of threads.
const AT_ONCE_BYTES: usize = 1024 * 1024;

/// Read beyond the size that a file had when it was opened.
const SMALL_BYTES: u64 = 16 * 1024;

/// Answers [`ReadFile`] after the content. The next part is read while one is sent.
///
/// # Errors
/// `IsADirectory`; `Invalid` for devices, pipes and sockets; as open(2) and read(2);
/// `Cancelled`.
pub async fn read(cx: &RequestContext, asked: ReadFile) -> Result<ReadFileReply, GuestError> {
    let name = asked.path.clone();
    let path = files::absolute(&asked.path)?;
    let (file, meta) = off_thread(move || files::open_regular(&path)).await?;
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
            && let Ok(read @ 1..) = sys::append(direct, bytes, most, at)
        {
            return Ok(read);
        }
        sys::append(&self.cached, bytes, most, at)
    }

    fn is_cached(&self, at: u64, len: u64) -> bool {
        let page = ALIGNMENT as u64;
        // A kernel that does not tell reads as it thinks best.
        sys::pages(&self.cached, at, len).map_or(true, |pages| pages >= len / page)
    }
}

/// Bytes of a large file that may be on the way at once, so that the disk and the link
/// work at the same time.
const WINDOW_BYTES: u64 = 4 * limits::INITIAL_CREDIT_BYTES as u64;
/// Files from this size on have their room reserved, so that a full disk is noticed first.
const RESERVED_FROM_BYTES: u64 = 1024 * 1024;

/// Answers [`WriteFile`] once the new content is durable under its name. `user` has no more rights than
/// their own; `None` is root.
///
/// # Errors
/// `UnknownUser`; `IsADirectory`, `Invalid` for a target that is no file, `NoSpace`, or as open(2); `Invalid`
/// when more or fewer bytes came than were announced; `Cancelled`. The old content is then still there.
pub async fn write(
    cx: &RequestContext,
    asked: WriteFile,
    user: Option<String>,
) -> Result<WriteFileReply, GuestError> {
    let WriteFile { path: name, mode, size_bytes } = asked;
    files::absolute(&name)?;
    let user = match user {
        Some(user) => Some(off_thread(move || as_user::find(&user)).await?),
        None => None,
    };
    let (root, target) = (cx.agent.files.root(), name.clone());
    let begun = start(user.clone(), move || Replacement::begin(&root, &target))?;
    let replacement = begun.await.map_err(panicked)?.map_err(engine_error)?;
    let failed = |error: std::io::Error| io_error(&error, &name);
    let file = replacement.file().map_err(failed)?;
    let reserved = move || reserve(&file, size_bytes).map(|()| Appending::new(file, size_bytes));
    let mut appending = off_thread(reserved).await.map_err(failed)?;
    if size_bytes > WINDOW_BYTES {
        cx.replenish((WINDOW_BYTES - u64::from(limits::INITIAL_CREDIT_BYTES)) as usize).await?;
    }
    let mut bytes = 0;
    loop {
        let InflowBatch { pieces, ended } = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(cancelled()),
            taken = cx.inflow.take() => taken,
        };
        let arrived: usize = pieces.iter().map(|piece| piece.content().len()).sum();
        bytes += arrived as u64;
        if bytes > size_bytes || (ended && bytes < size_bytes) {
            let message = format!("{name}: {bytes} bytes came, {size_bytes} announced");
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        let (back, written) = off_thread(move || {
            let contents: Vec<&[u8]> = pieces.iter().map(Payload::content).collect();
            let written = appending.append(&contents);
            (appending, written)
        })
        .await;
        appending = back;
        written.map_err(failed)?;
        if ended {
            break;
        }
        cx.replenish(arrived).await?;
    }
    // From here on the call cannot be cancelled: it is answered with what it did.
    let root = cx.agent.files.root();
    let replaced = start(user, move || replacement.commit(&root, mode))?;
    let replaced = replaced.await.map_err(panicked)?.map_err(engine_error)?;
    Ok(WriteFileReply { bytes, replaced: replaced.existed, mode: replaced.mode })
}

fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    if bytes < RESERVED_FROM_BYTES {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Size from which files bypass the page cache; smaller ones stay in it, for reads to come.
const DIRECT_FROM_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum number of pieces of one write.
const AT_ONCE: usize = 1024;

/// A new file that is written from its beginning.
#[derive(Debug)]
struct Appending {
    file: File,
    /// The descriptor is `O_DIRECT`.
    direct: bool,
    written: u64,
}

impl Appending {
    fn new(file: File, expected_bytes: u64) -> Self {
        let direct = expected_bytes >= DIRECT_FROM_BYTES && set_direct(&file, true).is_ok();
        Self { file, direct, written: 0 }
    }

    /// Appends all pieces.
    ///
    /// # Errors
    /// As write(2).
    fn append(&mut self, contents: &[&[u8]]) -> io::Result<()> {
        let fits = |content: &&&[u8]| {
            content.len().is_multiple_of(ALIGNMENT) && content.as_ptr().align_offset(ALIGNMENT) == 0
        };
        let fitting = match self.direct && self.written.is_multiple_of(ALIGNMENT as u64) {
            true => contents.iter().take_while(fits).count(),
            false => 0,
        };
        let mut slices: Vec<IoSlice<'_>> =
            contents.iter().map(|content| IoSlice::new(content)).collect();
        let (direct, cached) = slices.split_at_mut(fitting);
        let left = self.write(direct)?;
        if !left.is_empty() || !cached.is_empty() {
            self.leave_direct()?;
        }
        for slices in [left, cached] {
            if !self.write(slices)?.is_empty() {
                return Err(Errno::INVAL.into());
            }
        }
        Ok(())
    }

    /// Writes pieces; returns those that a direct file does not take.
    fn write<'s, 'b>(
        &mut self,
        mut slices: &'s mut [IoSlice<'b>],
    ) -> io::Result<&'s mut [IoSlice<'b>]> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match rustix::io::writev(&self.file, &slices[..slices.len().min(AT_ONCE)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.direct => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(slices)
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.direct) { set_direct(&self.file, false) } else { Ok(()) }
    }
}

fn set_direct(file: &File, on: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the file system of the temporary folder takes, and in whatever pieces
    /// the content comes, the file holds it.
    #[test]
    fn content_of_any_shape_arrives_whole() {
        let room: Vec<u8> = (0..40 * ALIGNMENT).map(|n| (n / 7) as u8).collect();
        let page = room.as_ptr().align_offset(ALIGNMENT);
        let aligned = &room[page..];
        let batches: [&[&[u8]]; 4] = [
            &[&aligned[..ALIGNMENT], &aligned[ALIGNMENT..4 * ALIGNMENT]],
            &[&aligned[4 * ALIGNMENT..8 * ALIGNMENT], &aligned[8 * ALIGNMENT..9 * ALIGNMENT + 5]],
            &[],
            &[&[], &aligned[9 * ALIGNMENT + 5..20 * ALIGNMENT]],
        ];
        for expected_bytes in [0, DIRECT_FROM_BYTES] {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("file");
            let file = File::create_new(&path).expect("a file");
            let mut appending = Appending::new(file, expected_bytes);
            for batch in batches {
                appending.append(batch).expect("appended");
            }
            assert!(std::fs::read(&path).expect("read") == aligned[..20 * ALIGNMENT]);
            assert!(!appending.direct);
        }
    }
}
