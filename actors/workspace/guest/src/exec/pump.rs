//! Reading a command's pipe: as much as was asked for is sent, the rest counted.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use hivekeep_protocol::Stream;
use rustix::buffer::spare_capacity;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::session::call::RequestContext;

/// Bytes of one read at first: the usual capacity of a pipe.
const PIPE_BYTES: usize = 64 * 1024;
/// Size of the pipe of a command that has much to say. It is emptied by one read: each
/// read of a full pipe wakes the command, and a change between two address spaces costs
/// an emulated CPU as much as copying some 100 KiB.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;
/// How long output that follows other output closely is gathered.
const GATHER: Duration = Duration::from_millis(2);
/// Size from which output is not gathered any further.
const ENOUGH_BYTES: usize = PIPE_BYTES / 2;

pub(super) struct Pump<'cx> {
    cx: &'cx RequestContext,
    stream: Stream,
    pipe: &'cx AsyncFd<OwnedFd>,
    /// Cancelled when no process that could write is left.
    all_written: &'cx CancellationToken,
    may_send: u64,
    total: u64,
    /// Bytes of one read.
    at_once: usize,
}

impl<'cx> Pump<'cx> {
    pub(super) fn new(
        cx: &'cx RequestContext,
        stream: Stream,
        pipe: &'cx AsyncFd<OwnedFd>,
        may_send: u64,
        all_written: &'cx CancellationToken,
    ) -> Self {
        Self { cx, stream, pipe, all_written, may_send, total: 0, at_once: PIPE_BYTES }
    }

    /// Bytes read from the pipe, sent or not.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Reads to the end of the pipe. A call that is cancelled, or a link that is
    /// gone, stops the sending but not the reading.
    pub(super) async fn run(&mut self) {
        let mut last_sent: Option<Instant> = None;
        let mut bytes = Vec::new();
        while let Ok(1..) = self.read(&mut bytes).await {
            if last_sent.is_some_and(|sent| sent.elapsed() < GATHER) {
                self.gather(&mut bytes).await;
            }
            self.total += bytes.len() as u64;
            if bytes.len() >= PIPE_BYTES {
                self.enlarge();
            }
            bytes.truncate(usize::try_from(self.may_send).unwrap_or(usize::MAX).min(bytes.len()));
            if bytes.is_empty() {
                continue;
            }
            self.may_send -= bytes.len() as u64;
            let content = Bytes::from(std::mem::take(&mut bytes));
            if self.cx.send(self.stream, content).await.is_err() {
                self.may_send = 0;
            }
            last_sent = Some(Instant::now());
        }
    }

    fn enlarge(&mut self) {
        let large = self.at_once > PIPE_BYTES;
        if !large && rustix::pipe::fcntl_setpipe_size(self.pipe.get_ref(), LARGE_PIPE_BYTES).is_ok()
        {
            self.at_once = LARGE_PIPE_BYTES;
        }
    }

    /// A command that writes little pieces fast is given a moment to write more,
    /// so that not every piece becomes a frame.
    async fn gather(&mut self, bytes: &mut Vec<u8>) {
        if bytes.len() < ENOUGH_BYTES {
            tokio::time::sleep(GATHER).await;
            while bytes.len() < bytes.capacity()
                && let Ok(1..) = read_some(self.pipe.get_ref(), bytes)
            {}
        }
    }

    /// Reads into the emptied buffer; 0 at the end.
    async fn read(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        bytes.clear();
        bytes.reserve(self.at_once);
        loop {
            tokio::select! {
                biased;
                ready = self.pipe.readable() => {
                    if let Ok(read) = ready?.try_io(|pipe| read_some(pipe.get_ref(), bytes)) {
                        return read;
                    }
                }
                () = self.all_written.cancelled() => {
                    return match read_some(self.pipe.get_ref(), bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                        read => read,
                    };
                }
            }
        }
    }
}

fn read_some(pipe: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<usize> {
    Ok(rustix::io::read(pipe, spare_capacity(bytes))?)
}
