//! Reading a command's pipe: as much as was asked for is sent, the rest counted.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hivekeep_protocol::Stream;
use rustix::buffer::spare_capacity;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::session::call::CallCx;
use crate::session::outbox::Chunk;

/// Size of the pipe of a command that has much to say.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;
/// How long output that follows other output closely is gathered.
const GATHER: Duration = Duration::from_millis(2);
/// A chunk this full is not worth waiting for.
const ENOUGH_BYTES: usize = Chunk::CAPACITY / 2;

pub(super) struct Pump<'cx> {
    cx: &'cx CallCx,
    stream: Stream,
    pipe: &'cx AsyncFd<OwnedFd>,
    /// Cancelled when no process that could write is left.
    all_written: &'cx CancellationToken,
    may_send: u64,
    total: u64,
    enlarged: bool,
}

impl<'cx> Pump<'cx> {
    pub(super) fn new(
        cx: &'cx CallCx,
        stream: Stream,
        pipe: &'cx AsyncFd<OwnedFd>,
        may_send: u64,
        all_written: &'cx CancellationToken,
    ) -> Self {
        Self { cx, stream, pipe, all_written, may_send, total: 0, enlarged: false }
    }

    /// Bytes read from the pipe, sent or not.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Reads to the end of the pipe. A call that is cancelled, or a link that is
    /// gone, stops the sending but not the reading.
    pub(super) async fn run(&mut self) {
        let mut chunk = Chunk::new();
        let mut last_sent: Option<Instant> = None;
        while let Ok(1..) = self.read(&mut chunk).await {
            if last_sent.is_some_and(|sent| sent.elapsed() < GATHER) {
                self.gather(&mut chunk).await;
            }
            self.total += chunk.len() as u64;
            if chunk.len() == Chunk::CAPACITY && !self.enlarged {
                self.enlarged = true;
                let _ = rustix::pipe::fcntl_setpipe_size(self.pipe.get_ref(), LARGE_PIPE_BYTES);
            }
            chunk.truncate(usize::try_from(self.may_send).unwrap_or(usize::MAX).min(chunk.len()));
            if chunk.is_empty() {
                continue;
            }
            self.may_send -= chunk.len() as u64;
            let full = std::mem::take(&mut chunk);
            if self.cx.send(self.stream, full).await.is_err() {
                self.may_send = 0;
            }
            last_sent = Some(Instant::now());
            chunk.truncate(0);
        }
    }

    /// A command that writes little pieces fast is given a moment to write more,
    /// so that not every piece becomes a frame.
    async fn gather(&mut self, chunk: &mut Chunk) {
        if chunk.len() < ENOUGH_BYTES {
            tokio::time::sleep(GATHER).await;
        }
        while chunk.len() < Chunk::CAPACITY
            && let Ok(1..) = read_some(self.pipe.get_ref(), chunk)
        {}
    }

    /// Reads into the emptied chunk; 0 at the end.
    async fn read(&self, chunk: &mut Chunk) -> io::Result<usize> {
        chunk.truncate(0);
        loop {
            tokio::select! {
                biased;
                ready = self.pipe.readable() => {
                    if let Ok(read) = ready?.try_io(|pipe| read_some(pipe.get_ref(), chunk)) {
                        return read;
                    }
                }
                () = self.all_written.cancelled() => {
                    return match read_some(self.pipe.get_ref(), chunk) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                        read => read,
                    };
                }
            }
        }
    }
}

fn read_some(pipe: &OwnedFd, chunk: &mut Chunk) -> io::Result<usize> {
    Ok(rustix::io::read(pipe, spare_capacity(chunk.buffer()))?)
}
