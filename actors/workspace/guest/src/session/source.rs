//! The reading half of a connection: preambles and frames out of bytes.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use hivekeep_protocol::{Decoder, Frame, HEADER_LEN, SyncScanner, begins_sync, limits};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Stream;

const BUFFER_BYTES: usize = 64 * 1024;
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

pub(super) struct Source<R> {
    reader: R,
    received: BytesMut,
    decoder: Decoder,
    stream: Stream,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn new(reader: R, stream: Stream) -> Self {
        let received = BytesMut::with_capacity(BUFFER_BYTES);
        Self { reader, received, decoder: Decoder::default(), stream }
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        if self.received.capacity() - self.received.len() < BUFFER_BYTES / 4 {
            self.received.reserve(BUFFER_BYTES);
        }
        match self.reader.read_buf(&mut self.received).await {
            Ok(0) | Err(_) => Err(Broken::Closed),
            Ok(_) => Ok(()),
        }
    }

    /// The nonce of the next preamble; everything before it is dropped.
    pub(super) async fn preamble(&mut self) -> Result<[u8; 16], Broken> {
        self.decoder = Decoder::default();
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

    /// The next frame. Cancel-safe.
    ///
    /// A header is looked at only when it is there as a whole, so that a preamble
    /// in the place of a frame is still in the buffer when it is looked for.
    pub(super) async fn frame(&mut self) -> Result<Frame, Broken> {
        loop {
            let enough = if self.decoder.mid_frame() { 1 } else { HEADER_LEN };
            while self.received.len() >= enough {
                if self.stream == Stream::Endless && self.at_preamble() {
                    return Err(Broken::Anew);
                }
                let (used, frame) = self
                    .decoder
                    .push(&self.received)
                    .map_err(|error| Broken::Rubbish(error.to_string()))?;
                self.received.advance(used);
                match frame {
                    Some(frame) => return Ok(frame),
                    None if self.received.is_empty() => break,
                    None => {}
                }
            }
            let inside = self.decoder.mid_frame() || !self.received.is_empty();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use hivekeep_protocol::{Kind, sync_preamble};

    fn source(bytes: &[u8], stream: Stream) -> Source<&[u8]> {
        Source::new(bytes, stream)
    }

    fn conversation() -> Vec<u8> {
        let frame = |id| Frame { kind: Kind::Cancel, id, payload: Vec::new() }.to_bytes();
        [sync_preamble([1; 16]).to_vec(), frame(1), sync_preamble([2; 16]).to_vec(), frame(2)]
            .concat()
    }

    #[tokio::test]
    async fn a_host_that_begins_anew_is_no_rubbish_and_loses_nothing() {
        let bytes = conversation();
        let mut source = source(&bytes, Stream::Endless);
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
        let mut source = source(&bytes, Stream::Connection);
        source.preamble().await.unwrap();
        source.frame().await.unwrap();
        let after = source.frame().await;
        assert!(matches!(after, Err(Broken::Rubbish(_))), "{after:?}");
    }
}
