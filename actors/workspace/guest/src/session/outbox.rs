//! The writing half of a connection: one task, one bounded queue.

use bytes::Bytes;
use hivekeep_protocol::{Frame, FrameKind, HEADER_LEN, Stream};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Frames waiting to be written: at most about 1 MiB of data.
const QUEUE_FRAMES: usize = 4;
/// Small frames are written together, up to this many bytes.
const GATHER_BYTES: usize = 8 * 1024;

/// The connection is gone.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the link is gone")]
pub struct LinkGone;

/// Sends frames of one connection, in order.
#[derive(Debug, Clone)]
pub struct Outbox(mpsc::Sender<Item>);

/// Header and stream byte.
const HEAD_LEN: usize = HEADER_LEN + 1;

#[derive(Debug)]
enum Item {
    Frame(Vec<u8>),
    Data { head: [u8; HEAD_LEN], content: Bytes },
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

    /// Queues content of at most [`hivekeep_protocol::limits::DATA_CHUNK_BYTES`] as
    /// one data frame; waits while the queue is full. Much content is not copied.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn data(&self, id: u32, stream: Stream, content: Bytes) -> Result<(), LinkGone> {
        let mut head = [stream as u8; HEAD_LEN];
        head[..HEADER_LEN].copy_from_slice(&Frame::header(FrameKind::Data, id, 1 + content.len()));
        self.0.send(Item::Data { head, content }).await.map_err(|_| LinkGone)
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
        let (mut bytes, mut large, mut done) = (Vec::new(), Bytes::new(), Vec::new());
        let mut next = Some(item);
        while let Some(item) = next.take() {
            match item {
                Item::Frame(frame) if bytes.is_empty() => bytes = frame,
                Item::Frame(frame) => bytes.extend_from_slice(&frame),
                Item::Data { head, content } => {
                    bytes.extend_from_slice(&head);
                    if content.len() < GATHER_BYTES {
                        bytes.extend_from_slice(&content);
                    } else {
                        large = content;
                    }
                }
                Item::Flushed(flushed) => done.push(flushed),
            }
            if bytes.len() < GATHER_BYTES && large.is_empty() {
                next = items.try_recv().ok();
            }
        }
        writer.write_all(&bytes).await?;
        writer.write_all(&large).await?;
        writer.flush().await?;
        for flushed in done {
            let _ = flushed.send(());
        }
    }
    Ok(())
}
