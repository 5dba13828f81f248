//! The reading half of a connection: preambles and frames out of bytes.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use hivekeep_protocol::{Decoder, Frame, HEADER_LEN, SyncScanner, begins_sync, limits};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Stream;
use super::payload::Payload;

/// Small, so that little of a large frame is received to here instead of its place.
const BUFFER_BYTES: usize = 16 * 1024;
/// Data frames of at least this much are received in place.
const IN_PLACE_BYTES: usize = 32 * 1024;
const GAP: Duration = Duration::from_millis(limits::MID_FRAME_GAP_MS);

/// Why a connection cannot be read any further.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer closed, or the carrier failed.
    Closed,
    /// What came is no conversation.
    Rubbish(String),
    /// A preamble stands where a frame should begin: the host opens a new connection,
    /// for it was restarted or did not hear of this one in time. Still to be read.
    Anew,
}

/// What [`Source::next`] brings.
pub(super) enum Incoming {
    Frame(Frame),
    /// A large data frame of this call.
    Data(u32, Payload),
}

pub(super) struct Source<R> {
    reader: R,
    received: BytesMut,
    decoder: Decoder,
    /// A large data frame of this call that has begun.
    in_place: Option<(u32, Payload)>,
    stream: Stream,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn new(reader: R, stream: Stream) -> Self {
        let received = BytesMut::with_capacity(BUFFER_BYTES);
        Self { reader, received, decoder: Decoder::default(), in_place: None, stream }
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        let read = match &mut self.in_place {
            Some((_, payload)) => self.reader.read_buf(&mut payload.rest()).await,
            None => {
                if self.received.capacity() - self.received.len() < BUFFER_BYTES / 4 {
                    self.received.reserve(BUFFER_BYTES);
                }
                self.reader.read_buf(&mut self.received).await
            }
        };
        match read {
            Ok(0) | Err(_) => Err(Broken::Closed),
            Ok(_) => Ok(()),
        }
    }

    /// The nonce of the next preamble; everything before it is dropped.
    pub(super) async fn preamble(&mut self) -> Result<[u8; 16], Broken> {
        self.decoder = Decoder::default();
        self.in_place = None;
        let mut scanner = SyncScanner::default();
        loop {
            let (used, nonce) = scanner.push(&self.received);
            self.received.advance(used);
            if let Some(nonce) = nonce {
                return Ok(nonce);
            }
            self.fill().await?;
        }
    }

    fn at_preamble(&self) -> bool {
        let header = self.received.first_chunk::<HEADER_LEN>();
        !self.decoder.mid_frame() && header.is_some_and(begins_sync)
    }

    /// The next frame of a handshake. Cancel-safe.
    pub(super) async fn frame(&mut self) -> Result<Frame, Broken> {
        match self.next().await? {
            Incoming::Frame(frame) => Ok(frame),
            Incoming::Data(..) => Err(Broken::Rubbish("data in the handshake".into())),
        }
    }

    /// The next frame. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Incoming, Broken> {
        loop {
            if let Some(incoming) = self.take()? {
                return Ok(incoming);
            }
            let inside = self.in_place.is_some()
                || self.decoder.mid_frame()
                || !self.received.is_empty();
            if inside && self.stream == Stream::Endless {
                match tokio::time::timeout(GAP, self.fill()).await {
                    Ok(filled) => filled?,
                    Err(_silent) => return Err(Broken::Rubbish("a frame broke off".into())),
                }
            } else {
                self.fill().await?;
            }
        }
    }

    /// A frame out of what has been received.
    ///
    /// A header is looked at only when it is there as a whole, so that a preamble
    /// in the place of a frame is still in the buffer when it is looked for.
    fn take(&mut self) -> Result<Option<Incoming>, Broken> {
        loop {
            if let Some((id, mut payload)) = self.in_place.take() {
                let here = payload.missing().min(self.received.len());
                payload.rest().put_slice(&self.received.split_to(here));
                if payload.missing() == 0 {
                    return Ok(Some(Incoming::Data(id, payload)));
                }
                self.in_place = Some((id, payload));
                return Ok(None);
            }
            if self.stream == Stream::Endless && self.at_preamble() {
                return Err(Broken::Anew);
            }
            let some = match (self.decoder.mid_frame(), self.received.len()) {
                (true, len @ 1..) => len,
                (false, HEADER_LEN..) => HEADER_LEN,
                _ => return Ok(None),
            };
            let (used, frame) = self
                .decoder
                .push(&self.received[..some])
                .map_err(|error| Broken::Rubbish(error.to_string()))?;
            self.received.advance(used);
            if let Some(frame) = frame {
                return Ok(Some(Incoming::Frame(frame)));
            }
            self.in_place = self
                .decoder
                .take_over(IN_PLACE_BYTES)
                .map(|(id, len)| (id, Payload::aligned(len)));
        }
    }
}
