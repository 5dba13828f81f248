//! The reading half of a connection: preambles and frames out of bytes.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use hivekeep_protocol::{Decoder, Frame, HEADER_LEN, SyncScanner, begins_sync, limits};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::StreamKind;
use super::inflow::Payload;

/// Size of the read buffer; small, so that little of a large frame is received to it instead of in place.
const BUFFER_BYTES: usize = 16 * 1024;
/// Data frames of at least this much are received in place.
const IN_PLACE_BYTES: usize = 32 * 1024;
const GAP: Duration = Duration::from_millis(limits::MID_FRAME_GAP_MS);

/// Why a connection cannot be read any further.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer closed, or the carrier failed.
    Closed,
    /// The bytes received break the protocol.
    Rubbish(String),
    /// A preamble stands where a frame should begin: the host opens a new connection,
    /// for it was restarted or did not hear of this one in time. Still to be read.
    Anew,
}

/// Item that [`Source::next`] returns.
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
    stream: StreamKind,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn new(reader: R, stream: StreamKind) -> Self {
        let received = BytesMut::with_capacity(BUFFER_BYTES);
        Self { reader, received, decoder: Decoder::default(), in_place: None, stream }
    }

    pub(super) fn stream(&self) -> StreamKind {
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
            let inside =
                self.in_place.is_some() || self.decoder.mid_frame() || !self.received.is_empty();
            if inside && self.stream == StreamKind::Endless {
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
            if self.stream == StreamKind::Endless && self.at_preamble() {
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
            self.in_place =
                self.decoder.take_over(IN_PLACE_BYTES).map(|(id, len)| (id, Payload::aligned(len)));
        }
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_protocol::{FrameKind, sync_preamble};
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn data(id: u32, len: usize) -> Frame {
        Frame { kind: FrameKind::Data, id, payload: (0..len).map(|n| (n % 3) as u8).collect() }
    }

    async fn next(source: &mut Source<tokio::io::DuplexStream>) -> (u32, Vec<u8>) {
        match source.next().await.expect("a frame") {
            Incoming::Frame(frame) => (frame.id, frame.payload[1..].to_vec()),
            Incoming::Data(id, payload) => (id, payload.content().to_vec()),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn large_and_small_frames_arrive_whatever_the_pieces(
            lens in proptest::collection::vec(
                prop_oneof![1usize..50, IN_PLACE_BYTES - 2..IN_PLACE_BYTES + 9, 90_000usize..99_000],
                1..9,
            ),
            piece in 1usize..70_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let (mut host, guest) = tokio::io::duplex(piece);
                let mut source = Source::new(guest, StreamKind::Connection);
                let frames: Vec<_> = (1..).zip(&lens).map(|(id, len)| data(id, *len)).collect();
                let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
                let sending = tokio::spawn(async move { host.write_all(&bytes).await });
                for frame in frames {
                    assert!(next(&mut source).await == (frame.id, frame.payload[1..].to_vec()));
                }
                sending.await.expect("no panic").expect("all taken");
            });
        }
    }

    #[tokio::test]
    async fn a_large_frame_that_breaks_off_gives_way_to_a_new_connection() {
        let (mut host, guest) = tokio::io::duplex(1 << 20);
        let mut source = Source::new(guest, StreamKind::Endless);
        let frame = data(7, 200_000).to_bytes();
        host.write_all(&frame[..150_000]).await.expect("taken");
        assert!(matches!(source.next().await, Err(Broken::Rubbish(_))));
        host.write_all(&sync_preamble([9; 16])).await.expect("taken");
        assert!(matches!(source.preamble().await, Ok(nonce) if nonce == [9; 16]));
        host.write_all(&data(8, 100_000).to_bytes()).await.expect("taken");
        assert_eq!(next(&mut source).await.0, 8);
    }

    fn conversation() -> Vec<u8> {
        let frame = |id| Frame { kind: FrameKind::Cancel, id, payload: Vec::new() }.to_bytes();
        [sync_preamble([1; 16]).to_vec(), frame(1), sync_preamble([2; 16]).to_vec(), frame(2)]
            .concat()
    }

    #[tokio::test]
    async fn a_host_that_begins_anew_is_no_rubbish_and_loses_nothing() {
        let bytes = conversation();
        let mut source = Source::new(&bytes[..], StreamKind::Endless);
        for nth in 1..=2 {
            assert_eq!(source.preamble().await.unwrap(), [nth; 16]);
            assert_eq!(source.frame().await.unwrap().id, u32::from(nth));
            let after = source.frame().await;
            let expected = if nth == 1 {
                matches!(after, Err(Broken::Anew))
            } else {
                matches!(after, Err(Broken::Closed))
            };
            assert!(expected, "{after:?}");
        }
    }

    #[tokio::test]
    async fn a_preamble_inside_a_connection_that_cannot_begin_anew_breaks_it() {
        let bytes = conversation();
        let mut source = Source::new(&bytes[..], StreamKind::Connection);
        source.preamble().await.unwrap();
        source.frame().await.unwrap();
        let after = source.frame().await;
        assert!(matches!(after, Err(Broken::Rubbish(_))), "{after:?}");
    }
}
