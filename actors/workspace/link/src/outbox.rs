//! Priority queue of frames to the writer.
//!
//! Two lanes: control frames (requests, cancels, credit) overtake data frames, so that a small call
//! does not wait behind an upload. Each lane keeps its order, and the writer sends a control frame
//! that was queued before a data frame before it; so a request always precedes its data.

use std::sync::Arc;

use hivekeep_protocol::{Frame, FrameKind, HEADER_LEN, limits::MAX_PAYLOAD_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of data frames that wait for the writer, of all uploads together.
const DATA_FRAMES: usize = 4;

/// Maximum size of requests that wait for the writer.
const REQUEST_BYTES: usize = 8 * MAX_PAYLOAD_BYTES;

pub(super) struct Outgoing {
    pub(super) header: [u8; HEADER_LEN],
    pub(super) payload: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Outgoing {
    fn new(kind: FrameKind, id: u32, payload: Vec<u8>) -> Self {
        Self { header: Frame::header(kind, id, payload.len()), payload, _room: None }
    }
}

pub(super) struct Outbox {
    /// Control lane. Not bounded by the channel, since a dropped call has to cancel without
    /// waiting, but by what is put in: a request takes room first, a call has two cancels at most,
    /// and credit is granted only for bytes received.
    control: mpsc::UnboundedSender<Outgoing>,
    data: mpsc::Sender<Outgoing>,
    /// Lane of streams. Not bounded by the channel, so that a stream whose writer went away in the middle
    /// of a write keeps no place of others, but by the permits that its frames hold.
    streams: mpsc::UnboundedSender<Outgoing>,
    room: Arc<Semaphore>,
}

/// Receiving ends of the writer.
pub(super) struct Queues {
    pub(super) control: mpsc::UnboundedReceiver<Outgoing>,
    pub(super) content: ContentQueues,
}

/// Receiving ends of what calls send.
pub(super) struct ContentQueues {
    data: mpsc::Receiver<Outgoing>,
    streams: mpsc::UnboundedReceiver<Outgoing>,
    streams_first: bool,
}

impl ContentQueues {
    /// Waits for a frame. Cancel-safe; `None` when no sender is left.
    pub(super) async fn next(&mut self) -> Option<Outgoing> {
        tokio::select! {
            Some(frame) = self.data.recv() => Some(frame),
            Some(frame) = self.streams.recv() => Some(frame),
            else => None,
        }
    }

    /// Takes a frame that is there, of each kind in turn.
    pub(super) fn try_next(&mut self) -> Option<Outgoing> {
        self.streams_first = !self.streams_first;
        if self.streams_first {
            self.streams.try_recv().ok().or_else(|| self.data.try_recv().ok())
        } else {
            self.data.try_recv().ok().or_else(|| self.streams.try_recv().ok())
        }
    }
}

impl Outbox {
    pub(super) fn new() -> (Self, Queues) {
        #[expect(clippy::disallowed_methods, reason = "bounded by what is put in, see `control`")]
        let (control, control_end) = mpsc::unbounded_channel();
        #[expect(clippy::disallowed_methods, reason = "bounded by permits, see `streams`")]
        let (streams, streams_end) = mpsc::unbounded_channel();
        let (data, data_end) = mpsc::channel(DATA_FRAMES);
        let room = Arc::new(Semaphore::new(REQUEST_BYTES));
        let content = ContentQueues { data: data_end, streams: streams_end, streams_first: false };
        (Self { control, data, streams, room }, Queues { control: control_end, content })
    }

    /// Waits for room for a request. At most [`MAX_PAYLOAD_BYTES`].
    pub(super) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        self.room.clone().acquire_many_owned(bytes).await.ok()
    }

    pub(super) fn request(&self, id: u32, payload: Vec<u8>, room: OwnedSemaphorePermit) {
        let mut frame = Outgoing::new(FrameKind::Request, id, payload);
        frame._room = Some(room);
        self.send_control(frame);
    }

    pub(super) fn cancel(&self, id: u32) {
        self.send_control(Outgoing::new(FrameKind::Cancel, id, Vec::new()));
    }

    pub(super) fn credit(&self, id: u32, bytes: u32) {
        self.send_control(Outgoing::new(FrameKind::Credit, id, bytes.to_be_bytes().to_vec()));
    }

    fn send_control(&self, frame: Outgoing) {
        // Without a writer the link is down, which the caller notices by itself.
        let _ = self.control.send(frame);
    }

    /// Waits for a place and queues content (its stream byte in front). False when the link is
    /// down.
    pub(super) async fn data(&self, id: u32, payload: Vec<u8>) -> bool {
        self.data.send(Outgoing::new(FrameKind::Data, id, payload)).await.is_ok()
    }

    /// Queues the end of a call's content, after it.
    pub(super) async fn end(&self, id: u32) -> bool {
        self.data.send(Outgoing::new(FrameKind::End, id, Vec::new())).await.is_ok()
    }

    /// Queues content of a stream (its stream byte in front), which gives its permit back once written.
    pub(super) fn stream_data(
        &self,
        id: u32,
        payload: Vec<u8>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let mut frame = Outgoing::new(FrameKind::Data, id, payload);
        frame._room = permit;
        // Without a writer the link is down, which the stream notices by itself.
        let _ = self.streams.send(frame);
    }

    /// Queues the end of a stream's content, after it; at most once a stream.
    pub(super) fn stream_end(&self, id: u32) {
        let _ = self.streams.send(Outgoing::new(FrameKind::End, id, Vec::new()));
    }
}
