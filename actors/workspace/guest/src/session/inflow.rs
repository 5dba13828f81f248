//! Content on its way from the host to a call, bounded by the credit given.
//!
//! A payload is received to where a disk can take it from.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::BufMut;
use bytes::buf::Limit;
use hivekeep_protocol::{Stream, limits};
use tokio::sync::Notify;

/// Pieces up to this size are joined, so that many tiny frames cost no more
/// memory than one large one.
const JOIN_BELOW: usize = 4096;
/// Content in bulk is handed on in batches of at least this, or what there is at the
/// end: each batch costs a visit to another thread. Half of the window, so that the
/// host never waits for a grant that waits for the host.
const BATCH_BYTES: usize = limits::INITIAL_CREDIT_BYTES as usize / 2;

/// A call's received and not yet used content.
#[derive(Debug)]
pub struct Inflow {
    /// Content bytes that are worth a batch.
    batch: usize,
    /// Held for a push or a take only.
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug)]
struct State {
    pieces: VecDeque<Payload>,
    /// Content bytes in `pieces`.
    waiting: usize,
    window: usize,
    ended: bool,
}

/// Batch that [`Inflow::take`] returns.
#[derive(Debug)]
pub struct InflowBatch {
    /// Pieces in order.
    pub pieces: VecDeque<Payload>,
    /// Nothing more will come.
    pub ended: bool,
}

impl Inflow {
    /// Content for a disk or for a decoder.
    pub(super) fn bulk() -> Self {
        Self::new(limits::INITIAL_CREDIT_BYTES, BATCH_BYTES)
    }

    /// Content that somebody waits for.
    pub(super) fn prompt() -> Self {
        Self::new(limits::STREAM_WINDOW_BYTES, 1)
    }

    fn new(window: u32, batch: usize) -> Self {
        let window = window as usize;
        let state = State { pieces: VecDeque::new(), waiting: 0, window, ended: false };
        Self { batch, state: Mutex::new(state), arrived: Notify::new() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// When the payload is no content, or more than the credit allows.
    pub(super) fn push(&self, payload: Payload) -> Result<(), String> {
        if payload.stream() != Some(Stream::Content) {
            return Err("data that is not content".into());
        }
        let mut state = self.state();
        let len = payload.content().len();
        state.window = state.window.checked_sub(len).ok_or("data beyond the credit")?;
        if state.ended {
            return Err("data behind the end".into());
        }
        match state.pieces.back_mut() {
            Some(last)
                if len < JOIN_BELOW && last.content().len() + len <= limits::DATA_CHUNK_BYTES =>
            {
                last.join(payload.content());
            }
            _ if len == 0 => {}
            _ => state.pieces.push_back(payload),
        }
        state.waiting += len;
        let enough = state.waiting >= self.batch;
        drop(state);
        if enough {
            self.arrived.notify_one();
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.state().ended = true;
        self.arrived.notify_one();
    }

    /// Waits for a batch of content or the end. Cancel-safe. One taker at a time.
    pub async fn take(&self) -> InflowBatch {
        loop {
            {
                let mut state = self.state();
                if state.ended || state.waiting >= self.batch {
                    let pieces = std::mem::take(&mut state.pieces);
                    state.waiting = 0;
                    return InflowBatch { pieces, ended: state.ended };
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Widens the window by what the host may send more; the caller grants it to the host.
    pub(super) fn widen(&self, bytes: usize) {
        self.state().window += bytes;
    }
}

/// Alignment of a disk transfer: of its memory, its length and its place in the file; a page.
pub const ALIGNMENT: usize = 4096;

/// A stream byte and content, which begins on a page if it was [`Payload::aligned`].
#[derive(Debug)]
pub struct Payload {
    bytes: Vec<u8>,
    /// Index of the stream byte.
    start: usize,
    /// Stream byte and content when it is complete.
    len: usize,
}

impl Payload {
    /// Room for a payload of `len` bytes, the stream byte included.
    pub(super) fn aligned(len: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(len + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT) + ALIGNMENT - 1;
        let start = start % ALIGNMENT;
        bytes.resize(start, 0);
        Self { bytes, start, len }
    }

    /// Buffer for the bytes that have not come yet.
    pub(super) fn rest(&mut self) -> Limit<&mut Vec<u8>> {
        let missing = self.missing();
        (&mut self.bytes).limit(missing)
    }

    /// Bytes that have not come yet.
    pub(super) fn missing(&self) -> usize {
        (self.start + self.len).saturating_sub(self.bytes.len())
    }

    pub(super) fn stream(&self) -> Option<Stream> {
        self.bytes.get(self.start).and_then(|byte| Stream::try_from(*byte).ok())
    }

    /// Content without the stream byte.
    pub fn content(&self) -> &[u8] {
        self.bytes.get(self.start + 1..).unwrap_or_default()
    }

    /// Appends content of the same stream.
    pub(super) fn join(&mut self, content: &[u8]) {
        self.bytes.extend_from_slice(content);
        self.len += content.len();
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { bytes, start: 0, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_begins_on_a_page_and_takes_no_more_than_was_announced() {
        for len in [1, 2, 4097, 300_000] {
            let mut payload = Payload::aligned(len);
            let room = payload.bytes.capacity();
            payload.rest().put_bytes(0, len);
            assert_eq!((payload.missing(), payload.content().len()), (0, len - 1));
            assert_eq!(payload.rest().remaining_mut(), 0);
            assert_eq!(payload.content().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(payload.bytes.capacity(), room, "it moved");
            assert_eq!(payload.stream(), Some(Stream::Content));
        }
    }
}
