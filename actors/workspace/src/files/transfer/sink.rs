//! A sink for downloads: a new file, of which one part is written while the next is received.
//!
//! Full parts bypass the page cache where the file system takes that: it costs less, and little is
//! left for the sync at the end.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    task::{JoinHandle, spawn_blocking},
};

/// Bytes of one write. Two such parts are in memory: one is filled, one is written.
const PART_BYTES: usize = 1024 * 1024;

/// Memory alignment that a direct write needs.
const ALIGNMENT: usize = 4096;

pub(super) struct DiskSink {
    filling: Part,
    /// The file and a spare part; `None` while a write has them.
    idle: Option<(DiskLayers, Part)>,
    writing: Option<JoinHandle<(DiskLayers, Part, io::Result<()>)>>,
}

impl DiskSink {
    /// Writes from the beginning of an empty file.
    pub(crate) fn new(file: File) -> Self {
        let disk = DiskLayers { file, written: 0, mode: Mode::Untried };
        Self { filling: Part::new(), idle: Some((disk, Part::new())), writing: None }
    }

    /// Writes what is left and makes all of it durable.
    pub(crate) async fn sync(mut self) -> io::Result<()> {
        self.flush().await?;
        let (disk, _) = self.idle.take().ok_or_else(lost)?;
        spawn_blocking(move || disk.file.sync_all()).await?
    }

    /// Waits for the write under way.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let outcome = ready!(Pin::new(writing).poll(cx));
        self.writing = None;
        let (disk, part, written) = outcome?;
        self.idle = Some((disk, part));
        Poll::Ready(written)
    }

    /// Starts to write the filled part; no other write may be under way.
    fn start(&mut self) -> io::Result<()> {
        let (mut disk, spare) = self.idle.take().ok_or_else(lost)?;
        let mut part = std::mem::replace(&mut self.filling, spare);
        self.writing = Some(spawn_blocking(move || {
            let written = disk.write(&part);
            part.clear();
            (disk, part, written)
        }));
        Ok(())
    }
}

/// Error after a write that panicked.
fn lost() -> io::Error {
    io::Error::other("an earlier write was lost")
}

impl AsyncWrite for DiskSink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.filling.room() == 0 {
            ready!(self.poll_idle(cx))?;
            self.start()?;
        }
        let taken = bytes.len().min(self.filling.room());
        self.filling.bytes.extend_from_slice(&bytes[..taken]);
        if self.filling.room() == 0 && self.idle.is_some() {
            self.start()?;
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_idle(cx))?;
            if self.filling.content().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.start()?;
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// A buffer that never moves.
struct Part {
    bytes: Vec<u8>,
    start: usize,
}

impl Part {
    fn new() -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(PART_BYTES + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT) % ALIGNMENT;
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    fn content(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn room(&self) -> usize {
        PART_BYTES - self.content().len()
    }

    fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }
}

struct DiskLayers {
    file: File,
    written: u64,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Untried,
    Direct,
    Cached,
}

impl DiskLayers {
    fn write(&mut self, part: &Part) -> io::Result<()> {
        match (self.mode, part.room()) {
            (Mode::Untried, 0) if self.set_direct(true).is_ok() => self.mode = Mode::Direct,
            (Mode::Untried, 0) => self.mode = Mode::Cached,
            (Mode::Direct, 1..) => self.leave_direct()?,
            _ => {}
        }
        let written = self.file.write_all_at(part.content(), self.written);
        match written {
            // Some file systems take the flag and refuse the write.
            Err(error)
                if self.mode == Mode::Direct && error.kind() == io::ErrorKind::InvalidInput =>
            {
                self.leave_direct()?;
                self.file.write_all_at(part.content(), self.written)?;
            }
            written => written?,
        }
        self.written += part.content().len() as u64;
        Ok(())
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        self.mode = Mode::Cached;
        self.set_direct(false)
    }

    fn set_direct(&self, on: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, on);
        Ok(fcntl_setfl(&self.file, flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several parts and a rest, in pieces that fit no part.
    #[tokio::test]
    async fn what_is_written_is_in_the_file() {
        for len in [0, 5, PART_BYTES, 3 * PART_BYTES + 12_345] {
            let content: Vec<u8> = (0..len).map(|n| (n / 3) as u8).collect();
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("file");
            let mut sink = DiskSink::new(File::create_new(&path).expect("a file"));
            for piece in content.chunks(100_003) {
                sink.write_all(piece).await.expect("written");
            }
            sink.sync().await.expect("synced");
            assert!(std::fs::read(&path).expect("read") == content, "{len}");
        }
    }

    #[tokio::test]
    async fn a_write_that_fails_is_told() {
        // Always full, whatever the user.
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let mut sink = DiskSink::new(full);
        sink.write_all(b"something").await.expect("only kept");
        let error = sink.sync().await.expect_err("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
