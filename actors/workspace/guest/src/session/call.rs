//! Context of a call: the handler's half, and the connection's.

use std::sync::Arc;

use bytes::Bytes;
use hivekeep_protocol::{Frame, FrameKind, GuestCode, GuestError, Stream, limits};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::inflow::Inflow;
use super::outbox::Outbox;
use crate::agent::Agent;

/// Most credit that is ever held; a host that grants more gains nothing.
const MAX_CREDIT_BYTES: usize = 1 << 30;

/// A handler's view of its call.
#[derive(Debug)]
pub struct RequestContext {
    /// The call.
    pub id: u32,
    /// The daemon.
    pub agent: Arc<Agent>,
    /// Cancelled by the host, or by the end of the connection.
    pub cancel: CancellationToken,
    /// Cancelled by the host alone.
    pub ordered: CancellationToken,
    /// Content from the host.
    pub inflow: Arc<Inflow>,
    pub(crate) outbox: Outbox,
    credit: Arc<Credit>,
}

/// The connection's hold on a call.
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) kind: CallKind,
    pub(super) cancel: CancellationToken,
    pub(super) ordered: CancellationToken,
    pub(super) credit: Arc<Credit>,
    pub(super) inflow: Arc<Inflow>,
}

/// Kind of a call: which places it takes, and how its content flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Content in bulk, if any.
    Ordinary,
    /// Content as it comes, both ways.
    Stream,
}

pub(super) fn open(
    id: u32,
    kind: CallKind,
    agent: Arc<Agent>,
    outbox: Outbox,
) -> (RequestContext, Control) {
    let (ordered, cancel) = (CancellationToken::new(), CancellationToken::new());
    let (window, inflow) = match kind {
        CallKind::Ordinary => (limits::INITIAL_CREDIT_BYTES, Inflow::bulk()),
        CallKind::Stream => (limits::STREAM_WINDOW_BYTES, Inflow::prompt()),
    };
    let credit = Arc::new(Credit(Semaphore::new(window as usize)));
    let inflow = Arc::new(inflow);
    let control = Control {
        id,
        kind,
        cancel: cancel.clone(),
        ordered: ordered.clone(),
        credit: credit.clone(),
        inflow: inflow.clone(),
    };
    (RequestContext { id, agent, cancel, ordered, inflow, outbox, credit }, control)
}

/// Bytes that a call may still send.
#[derive(Debug)]
pub(super) struct Credit(Semaphore);

impl Credit {
    pub(super) fn grant(&self, bytes: u32) {
        let room = MAX_CREDIT_BYTES.saturating_sub(self.0.available_permits());
        self.0.add_permits((bytes as usize).min(room));
    }
}

impl RequestContext {
    /// Sends content, frame by frame, once the host has granted credit for it.
    ///
    /// # Errors
    /// `Cancelled`, also when the connection is gone.
    pub async fn send(&self, stream: Stream, mut content: Bytes) -> Result<(), GuestError> {
        while !content.is_empty() {
            let chunk = content.split_to(content.len().min(limits::DATA_CHUNK_BYTES));
            self.send_chunk(stream, chunk).await?;
        }
        Ok(())
    }

    async fn send_chunk(&self, stream: Stream, chunk: Bytes) -> Result<(), GuestError> {
        let bytes = u32::try_from(chunk.len()).expect("a chunk is small");
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(cancelled()),
            permit = self.credit.0.acquire_many(bytes) => permit.map_err(|_| cancelled())?.forget(),
        }
        self.outbox.data(self.id, stream, chunk).await.map_err(|_| cancelled())
    }

    /// Lets the host send as much content as has been used.
    ///
    /// # Errors
    /// `Cancelled` when the connection is gone.
    pub async fn replenish(&self, bytes: usize) -> Result<(), GuestError> {
        self.inflow.widen(bytes);
        self.grant(u32::try_from(bytes).unwrap_or(u32::MAX)).await
    }

    /// Tells the host of credit that the call's window has room for.
    ///
    /// # Errors
    /// `Cancelled` when the connection is gone.
    pub(crate) async fn grant(&self, bytes: u32) -> Result<(), GuestError> {
        self.frame(FrameKind::Credit, bytes.to_be_bytes().to_vec()).await
    }

    /// Tells the host that no more content comes.
    ///
    /// # Errors
    /// `Cancelled` when the connection is gone.
    pub(crate) async fn end(&self) -> Result<(), GuestError> {
        self.frame(FrameKind::End, Vec::new()).await
    }

    async fn frame(&self, kind: FrameKind, payload: Vec<u8>) -> Result<(), GuestError> {
        let frame = Frame { kind, id: self.id, payload };
        self.outbox.send(frame.to_bytes()).await.map_err(|_| cancelled())
    }
}

/// The answer to a cancelled call.
pub fn cancelled() -> GuestError {
    GuestError::new(GuestCode::Cancelled, "cancelled by the host")
}
