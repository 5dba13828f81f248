//! Byte stream to a port of the guest, or from a program of it: one call as an `AsyncRead + AsyncWrite`, half-close kept.
//!
//! Both halves are polled by the holder of the value, without a task in between. Buffers are bounded: by the
//! granted window towards the host, and by two frames towards the guest.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hivekeep_protocol::{
    AcceptStream, FromGuest, GuestRequest, OpenStream, Stream, StreamClosed,
    limits::STREAM_CHUNK_BYTES,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::PollSemaphore;

use super::{
    Link,
    call::{CallTerms, OpenCall},
    calls::Slot,
    core::Core,
    error::{LinkError, Violation},
    inbox::{Chunk, Exchange, Inbox, Reply},
};

/// Number of frames of a stream that wait for the writer.
const FRAMES_QUEUED: usize = 2;

/// Length of a guest's message in an I/O error.
const MAX_MESSAGE_CHARS: usize = 500;

impl Link {
    /// Connects to a TCP port inside the guest. `wait` bounds the connecting alone.
    ///
    /// Streams have places of their own, 128 at a time: one more waits for one, and no other call does.
    ///
    /// # Errors
    /// See [`Link::ask`]; the guest's `PortClosed` when nothing takes connections there.
    pub async fn open_stream(&self, port: u16, wait: CallTerms) -> Result<GuestStream, LinkError> {
        self.stream(OpenStream { port }, wait).await
    }

    /// Takes the next connection that a program of the guest makes to a port of 127.0.0.1, where the guest's
    /// daemon listens for the host. `wait` bounds the waiting alone. Takes a place like [`Self::open_stream`], also
    /// while it waits: a guest has as many connections as the host waits for.
    ///
    /// # Errors
    /// See [`Link::ask`]; the guest's `PortTaken` when something else listens there, `Busy` for too many ports,
    /// `Unsupported` from a guest of an older daemon.
    pub async fn accept_stream(
        &self,
        port: u16,
        wait: CallTerms,
    ) -> Result<GuestStream, LinkError> {
        self.stream(AcceptStream { port }, wait).await
    }

    async fn stream<R: GuestRequest<Reply = StreamClosed>>(
        &self,
        request: R,
        wait: CallTerms,
    ) -> Result<GuestStream, LinkError> {
        let core = self.core();
        let request = request.into_wire();
        let mut call = core.open(request, Exchange::Stream, Slot::Stream, &wait).await?;
        match call.until(&wait, Inbox::opened).await? {
            None => Ok(GuestStream::new(call)),
            Some(refused) => {
                core.typed::<R>(refused)?;
                // The guest cannot have ended a stream that is not open.
                core.close(Violation::WrongReply.into());
                Err(core.down_error())
            }
        }
    }
}

/// Stream to a port of a guest, or from a program in it. A read that finds the connection broken fails and is no end of file.
///
/// Dropping it ends the connection at once, with whatever was written and not yet taken by the port:
/// who wants that to arrive shuts down and reads to the end.
pub struct GuestStream {
    core: Arc<Core>,
    call: OpenCall,
    /// Received and not yet read, and how much of the first was read.
    chunks: VecDeque<Chunk>,
    read: usize,
    /// Number of bytes that may be sent and are taken from the call's credit.
    credit: usize,
    room: PollSemaphore,
    permit: Option<OwnedSemaphorePermit>,
    shut: bool,
}

impl GuestStream {
    fn new(call: OpenCall) -> Self {
        Self {
            core: call.shared(),
            call,
            chunks: VecDeque::new(),
            read: 0,
            credit: 0,
            room: PollSemaphore::new(Arc::new(Semaphore::new(FRAMES_QUEUED))),
            permit: None,
            shut: false,
        }
    }

    /// Copies what was received; false when there is nothing.
    fn read_chunk(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let Some(chunk) = self.chunks.front() else { return false };
        let rest = &chunk.content()[self.read..];
        let len = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..len]);
        self.read += len;
        if len == rest.len() {
            self.chunks.pop_front();
            self.read = 0;
        }
        self.call.consumed(len);
        true
    }

    /// Waits for credit of the guest.
    fn poll_credit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call.call().writing.register(cx.waker());
        let mut inbox = self.call.call().inbox();
        if let Some(reply) = inbox.reply() {
            return Poll::Ready(Err(ended_by(&self.core, reply, io::ErrorKind::BrokenPipe)));
        }
        if self.credit == 0 {
            // At most a chunk, so the conversion is exact.
            self.credit = inbox.take_credit(STREAM_CHUNK_BYTES as u64) as usize;
        }
        drop(inbox);
        match self.core.down() {
            Some(down) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the link is down: {down}"),
            ))),
            None if self.credit > 0 => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }
}

/// Error for a stream that the guest's reply has ended. A reply of another kind ends the link.
fn ended_by(core: &Core, reply: &Reply, in_order: io::ErrorKind) -> io::Error {
    match reply {
        Ok(FromGuest::OpenStream(_) | FromGuest::AcceptStream(_)) => in_order.into(),
        Ok(_) => {
            core.close(Violation::WrongReply.into());
            io::Error::new(io::ErrorKind::InvalidData, Violation::WrongReply)
        }
        Err(error) => {
            // A guest's message is untrusted text: bounded here.
            let message: String = error.message.chars().take(MAX_MESSAGE_CHARS).collect();
            io::Error::new(io::ErrorKind::ConnectionReset, message)
        }
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 || this.read_chunk(buf) {
            return Poll::Ready(Ok(()));
        }
        this.call.call().reading.register(cx.waker());
        let mut inbox = this.call.call().inbox();
        inbox.take_chunks(&mut this.chunks);
        let over = match inbox.reply() {
            _ if inbox.has_ended() => Some(Ok(())),
            Some(reply) => Some(Err(ended_by(&this.core, reply, io::ErrorKind::UnexpectedEof))),
            None => None,
        };
        drop(inbox);
        if this.read_chunk(buf) {
            return Poll::Ready(Ok(()));
        }
        match (over, this.core.down()) {
            (Some(over), _) => Poll::Ready(over),
            (None, Some(down)) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the link is down: {down}"),
            ))),
            (None, None) => Poll::Pending,
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(this.poll_credit(cx))?;
        if this.permit.is_none() {
            this.permit = ready!(this.room.poll_acquire(cx));
        }
        let len = bytes.len().min(this.credit);
        let mut payload = Vec::with_capacity(len + 1);
        payload.push(Stream::Content as u8);
        payload.extend_from_slice(&bytes[..len]);
        this.credit -= len;
        this.core.outbox.stream_data(this.call.id(), payload, this.permit.take());
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.shut, true) {
            this.core.outbox.stream_end(this.call.id());
        }
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for GuestStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestStream").field("call", &self.call.id()).finish_non_exhaustive()
    }
}
