//! Tasks of a link: the reader brings frames to their calls, and events to those who want them; the writer sends what
//! is queued.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::BufMut;
use bytes::buf::Limit;
use hivekeep_protocol::{Decoder, Frame, FrameKind, GuestEvent, HEADER_LEN, decode};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::broadcast;

use crate::carrier::{CarrierReader, CarrierWriter};
use crate::core::Core;
use crate::error::{LinkDown, Violation};
use crate::inbox::Reply;
use crate::outbox::{Outgoing, Queues};

/// Number of bytes requested from the carrier at once. Small, so that little of a large frame is
/// received into the buffer instead of its final place.
pub(super) const READ_BYTES: usize = 32 * 1024;

/// Minimum size of data frames that are received in place.
const IN_PLACE_BYTES: usize = 64 * 1024;

/// Demultiplexer: passes the guest's frames to their calls until the link is down. `received` came
/// with the handshake.
pub(super) async fn read_until_down(core: Arc<Core>, reader: CarrierReader, received: Vec<u8>) {
    tokio::select! {
        biased;
        _ = core.closed() => {}
        reason = read(&core, reader, received) => core.close(reason),
    }
}

async fn read(core: &Core, mut reader: CarrierReader, received: Vec<u8>) -> LinkDown {
    let mut incoming = Incoming::default();
    if let Err(reason) = incoming.take_in(core, &received) {
        return reason;
    }
    drop(received);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match &mut incoming.in_place {
            Some(body) => reader.read_buf(&mut body.rest()).await,
            None => reader.read(&mut buffer).await,
        };
        let len = match read {
            Ok(0) => return LinkDown::Ended,
            Ok(len) => len,
            Err(error) => return LinkDown::Io(error.to_string()),
        };
        core.note_activity();
        let taken = match &incoming.in_place {
            Some(_) => incoming.in_place_done(core),
            None => incoming.take_in(core, &buffer[..len]),
        };
        if let Err(reason) = taken {
            return reason;
        }
    }
}

/// Frame that is being received.
#[derive(Default)]
struct Incoming {
    decoder: Decoder,
    /// Large data frame; the decoder then waits for the next header.
    in_place: Option<Body>,
}

/// Payload being received.
struct Body {
    id: u32,
    len: usize,
    payload: Vec<u8>,
}

impl Body {
    fn missing(&self) -> usize {
        self.len - self.payload.len()
    }

    fn rest(&mut self) -> Limit<&mut Vec<u8>> {
        let missing = self.missing();
        (&mut self.payload).limit(missing)
    }
}

impl Incoming {
    fn take_in(&mut self, core: &Core, mut bytes: &[u8]) -> Result<(), LinkDown> {
        while !bytes.is_empty() {
            if let Some(body) = &mut self.in_place {
                let here = body.missing().min(bytes.len());
                body.payload.extend_from_slice(&bytes[..here]);
                bytes = &bytes[here..];
                self.in_place_done(core)?;
                continue;
            }
            let some =
                if self.decoder.mid_frame() { bytes.len() } else { bytes.len().min(HEADER_LEN) };
            let (used, frame) = self.decoder.push(&bytes[..some])?;
            bytes = &bytes[used..];
            if let Some(frame) = frame {
                deliver(core, frame)?;
            } else if let Some((id, len)) = self.decoder.take_over(IN_PLACE_BYTES) {
                self.in_place = Some(Body { id, len, payload: Vec::with_capacity(len) });
            }
        }
        Ok(())
    }

    fn in_place_done(&mut self, core: &Core) -> Result<(), LinkDown> {
        if let Some(Body { id, payload, .. }) = self.in_place.take_if(|body| body.missing() == 0) {
            deliver(core, Frame { kind: FrameKind::Data, id, payload })?;
        }
        Ok(())
    }
}

fn deliver(core: &Core, Frame { kind, id, payload }: Frame) -> Result<(), Violation> {
    match kind {
        FrameKind::Data => match core.calls.find(id) {
            Some(call) => {
                call.inbox().data(payload)?;
                call.notify();
            }
            None if core.is_stray() => {}
            None => return Err(Violation::UnknownCall(kind, id)),
        },
        FrameKind::Reply => match core.calls.find(id) {
            Some(call) => {
                // Closed only once the reply is decoded: a call that is open is woken by the end of
                // the link.
                let reply: Reply = decode(&payload).map_err(|_| Violation::Undecodable(kind))?;
                core.calls.close(id);
                call.inbox().answer(reply);
                call.notify();
            }
            None if core.is_stray() => {}
            None => return Err(Violation::UnknownCall(kind, id)),
        },
        FrameKind::Credit => {
            let bytes = payload.try_into().map_err(|_| Violation::Undecodable(kind))?;
            // Late and harmless for a closed call.
            if let Some(call) = core.calls.find(id) {
                call.inbox().credit(u32::from_be_bytes(bytes));
                call.notify();
            }
        }
        FrameKind::End => match core.calls.find(id) {
            Some(call) => {
                call.inbox().end()?;
                call.notify();
            }
            None if core.is_stray() => {}
            None => return Err(Violation::UnknownCall(kind, id)),
        },
        FrameKind::Event if id == 0 => take_event(core, &payload)?,
        FrameKind::Event
        | FrameKind::Hello
        | FrameKind::Welcome
        | FrameKind::Request
        | FrameKind::Cancel => {
            return Err(Violation::UnexpectedKind(kind));
        }
    }
    Ok(())
}

fn take_event(core: &Core, payload: &[u8]) -> Result<(), Violation> {
    if payload.len() > MAX_EVENT_BYTES {
        return Err(Violation::EventSize(payload.len()));
    }
    match decode::<GuestEvent>(payload) {
        // Many empty results take twenty times the size of their frame here.
        Ok(GuestEvent::TaskEnded(push)) if push.page.results.len() != 1 => {
            core.publish(GuestEvent::TasksChanged);
        }
        Ok(event) => core.publish(event),
        // Events are hints, and a newer guest has kinds that this host does not know.
        Err(error) => tracing::debug!(%error, "an event of the guest was not understood"),
    }
    Ok(())
}

/// Maximum size of an event payload.
pub const MAX_EVENT_BYTES: usize = hivekeep_protocol::limits::MAX_EVENT_BYTES;

/// Number of events kept for a receiver that is behind.
pub(super) const KEPT_EVENTS: usize = 256;

/// Events that the guest pushes. They are hints: a receiver that is more than 256 behind loses the
/// oldest, and asks the guest for the truth.
pub struct GuestEvents {
    receiver: broadcast::Receiver<GuestEvent>,
    dropped: u64,
}

impl GuestEvents {
    pub(super) fn new(receiver: broadcast::Receiver<GuestEvent>) -> Self {
        Self { receiver, dropped: 0 }
    }

    /// Next event; `None` once the link is down and all are read.
    pub async fn recv(&mut self) -> Option<GuestEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => self.dropped += missed,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Number of events lost to this receiver because it was behind.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Number of data frames written at once: a quarter of a mebibyte, so that a control frame never
/// waits behind more.
const DATA_AT_ONCE: usize = 1;

/// Writes what is queued until the link is down.
pub(super) async fn write_until_down(core: Arc<Core>, mut writer: CarrierWriter, queues: Queues) {
    tokio::select! {
        biased;
        _ = core.closed() => {}
        error = write(&mut writer, queues) => core.close(LinkDown::Io(error.to_string())),
    }
    // Shutting down informs a guest behind a connection, bounded by the close itself.
    drop(writer);
}

async fn write(writer: &mut CarrierWriter, mut queues: Queues) -> io::Error {
    let (mut batch, mut data) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            biased;
            Some(frame) = queues.control.recv() => batch.push(frame),
            Some(frame) = queues.content.next() => data.push(frame),
            else => return io::ErrorKind::BrokenPipe.into(),
        }
        while data.len() < DATA_AT_ONCE
            && let Some(frame) = queues.content.try_next()
        {
            data.push(frame);
        }
        // Taken after the data: all control frames queued before it are here now.
        for _ in 0..queues.control.len() {
            batch.extend(queues.control.try_recv());
        }
        batch.append(&mut data);
        if let Err(error) = write_frames(writer, &batch).await {
            return error;
        }
        batch.clear();
    }
}

/// Writes frames with as few system calls as the carrier allows.
async fn write_frames<W: AsyncWrite + Unpin>(
    writer: &mut W,
    frames: &[Outgoing],
) -> io::Result<()> {
    if writer.is_write_vectored() {
        let mut slices: Vec<IoSlice<'_>> = frames
            .iter()
            .flat_map(|frame| [&frame.header[..], &frame.payload[..]])
            .filter(|part| !part.is_empty())
            .map(IoSlice::new)
            .collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match writer.write_vectored(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut rest, written),
            }
        }
    } else {
        let len = frames.iter().map(|frame| frame.header.len() + frame.payload.len()).sum();
        let mut bytes = Vec::with_capacity(len);
        for frame in frames {
            bytes.extend_from_slice(&frame.header);
            bytes.extend_from_slice(&frame.payload);
        }
        writer.write_all(&bytes).await?;
    }
    writer.flush().await
}
