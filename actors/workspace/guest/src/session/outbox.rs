//! The writing half of a connection: one task, one bounded queue.

use hivekeep_protocol::{Frame, HEADER_LEN, Kind, Stream, limits};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Frames waiting to be written: at most about 1 MiB of data chunks.
const QUEUE_FRAMES: usize = 16;
/// Small frames are written together, up to this many bytes.
const GATHER_BYTES: usize = 8 * 1024;

/// The connection is gone.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the link is gone")]
pub struct LinkGone;

/// Sends frames of one connection, in order.
#[derive(Debug, Clone)]
pub struct Outbox(mpsc::Sender<Item>);

#[derive(Debug)]
enum Item {
    Frame(Vec<u8>),
    Flushed(oneshot::Sender<()>),
}

impl Outbox {
    /// Queues the bytes of one frame; waits while the queue is full.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), LinkGone> {
        self.0.send(Item::Frame(frame)).await.map_err(|_| LinkGone)
    }

    /// Queues a frame if there is room: for hints, which may be lost.
    pub fn offer(&self, frame: Vec<u8>) {
        let _ = self.0.try_send(Item::Frame(frame));
    }

    /// Waits until everything queued before has been written.
    ///
    /// # Errors
    /// When the connection ended first.
    pub async fn flush(&self) -> Result<(), LinkGone> {
        let (done, flushed) = oneshot::channel();
        self.0.send(Item::Flushed(done)).await.map_err(|_| LinkGone)?;
        flushed.await.map_err(|_| LinkGone)
    }
}

/// Starts the writer. It ends when every [`Outbox`] is dropped, or with a write
/// error, which it tells through `broken`.
pub(super) fn start<W>(mut writer: W, broken: CancellationToken) -> (Outbox, JoinHandle<()>)
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (queue, mut items) = mpsc::channel(QUEUE_FRAMES);
    let task = tokio::spawn(async move {
        if write_all(&mut writer, &mut items).await.is_err() {
            broken.cancel();
        }
        let _ = writer.shutdown().await;
    });
    (Outbox(queue), task)
}

async fn write_all<W: AsyncWrite + Unpin>(
    writer: &mut W,
    items: &mut mpsc::Receiver<Item>,
) -> std::io::Result<()> {
    while let Some(item) = items.recv().await {
        let (mut bytes, mut done) = (Vec::new(), Vec::new());
        let mut next = Some(item);
        while let Some(item) = next.take() {
            match item {
                Item::Frame(frame) if bytes.is_empty() => bytes = frame,
                Item::Frame(frame) => bytes.extend_from_slice(&frame),
                Item::Flushed(flushed) => done.push(flushed),
            }
            if bytes.len() < GATHER_BYTES {
                next = items.try_recv().ok();
            }
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        for flushed in done {
            let _ = flushed.send(());
        }
    }
    Ok(())
}

/// A data frame that is filled in place: header and content leave in one write
/// without having been copied together.
#[derive(Debug)]
pub struct Chunk(Vec<u8>);

/// Header and stream byte.
const HEAD: usize = HEADER_LEN + 1;

impl Chunk {
    /// Most content bytes. The whole frame is then [`limits::DATA_CHUNK_BYTES`]
    /// long: two full buffers of virtio-console, with no small third one behind.
    pub const CAPACITY: usize = limits::DATA_CHUNK_BYTES - HEAD;

    /// An empty chunk.
    pub fn new() -> Self {
        let mut bytes = Vec::with_capacity(limits::DATA_CHUNK_BYTES);
        bytes.resize(HEAD, 0);
        Self(bytes)
    }

    /// Room for content; what is written there is kept by growing the vector.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Content bytes so far.
    pub fn len(&self) -> usize {
        self.0.len() - HEAD
    }

    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops content behind `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(HEAD + len);
    }

    /// The frame's bytes.
    pub fn into_frame(mut self, id: u32, stream: Stream) -> Vec<u8> {
        let header = Frame::header(Kind::Data, id, self.0.len() - HEADER_LEN);
        self.0[..HEADER_LEN].copy_from_slice(&header);
        self.0[HEADER_LEN] = stream as u8;
        self.0
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::new()
    }
}
