//! Frame codec with an incremental decoder.
//!
//! ```text
//! 0        4      5      6        8        12
//! │ length │ kind │ zero │ check  │ call id │ payload …
//! ```
//! Integers are big-endian; `length` counts the payload; `check` is the low half of a CRC-32 over
//! the other ten header bytes, so that a decoder that lost its place notices at once instead of
//! waiting for a gigabyte.
//!
//! Payloads are encoded by postcard, which is compact and allows new enum variants at the end.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::MAX_PAYLOAD_BYTES;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 12;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Host: [`crate::HostHello`].
    Hello = 1,
    /// Guest: `Result<GuestWelcome, HelloRefusal>`.
    Welcome = 2,
    /// Host: [`crate::ToGuest`]; opens the call.
    Request = 3,
    /// Guest: `Result<FromGuest, GuestError>`; closes the call.
    Reply = 4,
    /// Either: a [`crate::Stream`] byte, then content.
    Data = 5,
    /// Host, and guest for a stream: no more data will follow from this side for this call.
    End = 6,
    /// Host: the call's result is no longer wanted. A reply still follows.
    Cancel = 7,
    /// Either: a big-endian `u32` of data bytes that the sender may send more.
    Credit = 8,
    /// Guest, call id 0: [`crate::GuestEvent`].
    Event = 9,
}

impl FrameKind {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Request,
            4 => Self::Reply,
            5 => Self::Data,
            6 => Self::End,
            7 => Self::Cancel,
            8 => Self::Credit,
            9 => Self::Event,
            _ => return None,
        })
    }
}

/// Frame of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Id of the call it belongs to; 0 for handshake and events.
    pub id: u32,
    /// Payload of at most [`MAX_PAYLOAD_BYTES`].
    pub payload: Vec<u8>,
}

/// Framing error: the stream cannot be followed any further, and the connection must be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header's check does not match: the place in the stream was lost.
    #[error("frame header check failed")]
    Header,
    /// The header is sound but names an unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// The header is sound but the payload would exceed the limit.
    #[error("frame of {0} bytes exceeds the limit")]
    TooLarge(u32),
}

impl Frame {
    /// Header of twelve bytes for a payload of `payload_len` bytes.
    ///
    /// # Panics
    /// Panics when `payload_len` exceeds [`MAX_PAYLOAD_BYTES`]; senders chunk or refuse first.
    pub fn header(kind: FrameKind, id: u32, payload_len: usize) -> [u8; HEADER_LEN] {
        assert!(payload_len <= MAX_PAYLOAD_BYTES, "payload of {payload_len} bytes");
        let len = u32::try_from(payload_len).expect("bounded above");
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&len.to_be_bytes());
        header[4] = kind as u8;
        header[8..].copy_from_slice(&id.to_be_bytes());
        let check = check_of(&header);
        header[6..8].copy_from_slice(&check.to_be_bytes());
        header
    }

    /// Header and payload in one buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.payload.len());
        bytes.extend_from_slice(&Self::header(self.kind, self.id, self.payload.len()));
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

fn check_of(header: &[u8; HEADER_LEN]) -> u16 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..6]);
    crc.update(&header[8..]);
    (crc.finalize() & 0xffff) as u16
}

/// Incremental decoder of frames. Buffers at most one frame.
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER_LEN],
    header_len: usize,
    payload: Vec<u8>,
    expecting: Option<(FrameKind, u32, usize)>,
}

impl Decoder {
    /// True if a frame has begun and not ended.
    pub fn mid_frame(&self) -> bool {
        self.header_len > 0 || self.expecting.is_some()
    }

    /// Hands a data frame of at least `min_len` bytes, of which only the header has been consumed,
    /// to a caller that receives the payload itself. The next byte that is pushed belongs to the
    /// next frame.
    pub fn take_over(&mut self, min_len: usize) -> Option<(u32, usize)> {
        match self.expecting {
            Some((FrameKind::Data, id, len)) if len >= min_len && self.payload.is_empty() => {
                self.expecting = None;
                Some((id, len))
            }
            _ => None,
        }
    }

    /// Consumes bytes up to the end of one frame. Returns the number of bytes used and the frame,
    /// if it is complete. Call again with the rest.
    ///
    /// # Errors
    /// Fails when the stream is not a sequence of frames; the decoder is then unusable.
    pub fn push(&mut self, input: &[u8]) -> Result<(usize, Option<Frame>), FrameError> {
        let mut used = 0;
        if self.expecting.is_none() {
            let take = (HEADER_LEN - self.header_len).min(input.len());
            self.header[self.header_len..self.header_len + take].copy_from_slice(&input[..take]);
            self.header_len += take;
            used = take;
            if self.header_len < HEADER_LEN {
                return Ok((used, None));
            }
            let (kind, id, len) = self.parse_header()?;
            self.header_len = 0;
            self.expecting = Some((kind, id, len));
        }
        let (kind, id, len) = self.expecting.expect("set above");
        let take = (len - self.payload.len()).min(input.len() - used);
        if take > 0 && self.payload.is_empty() {
            self.payload.reserve_exact(len);
        }
        self.payload.extend_from_slice(&input[used..used + take]);
        used += take;
        if self.payload.len() < len {
            return Ok((used, None));
        }
        self.expecting = None;
        let payload = std::mem::take(&mut self.payload);
        Ok((used, Some(Frame { kind, id, payload })))
    }

    fn parse_header(&self) -> Result<(FrameKind, u32, usize), FrameError> {
        let h = &self.header;
        let check = u16::from_be_bytes([h[6], h[7]]);
        if check != check_of(h) || h[5] != 0 {
            return Err(FrameError::Header);
        }
        let len = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
        if len as usize > MAX_PAYLOAD_BYTES {
            return Err(FrameError::TooLarge(len));
        }
        let kind = FrameKind::of(h[4]).ok_or(FrameError::Kind(h[4]))?;
        Ok((kind, u32::from_be_bytes([h[8], h[9], h[10], h[11]]), len as usize))
    }
}

/// Error: the payload is not a value of the expected type.
#[derive(Debug, thiserror::Error)]
#[error("undecodable payload: {0}")]
pub struct DecodeError(#[source] postcard::Error);

/// Error: the value does not fit one frame.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The encoded value is larger than [`crate::limits::MAX_PAYLOAD_BYTES`].
    #[error("message of {0} bytes exceeds the frame limit")]
    TooLarge(usize),
    /// The value cannot be represented (never for this crate's own types).
    #[error("unencodable message: {0}")]
    Unrepresentable(#[source] postcard::Error),
}

/// Encodes a payload.
///
/// # Errors
/// Fails when the result would exceed [`crate::limits::MAX_PAYLOAD_BYTES`].
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let bytes = postcard::to_stdvec(value).map_err(EncodeError::Unrepresentable)?;
    if bytes.len() > crate::limits::MAX_PAYLOAD_BYTES {
        return Err(EncodeError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// Decodes a payload; bytes left over are an error.
///
/// # Errors
/// Fails when the bytes are not exactly one value of `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(DecodeError(postcard::Error::DeserializeBadEncoding)),
        Err(error) => Err(DecodeError(error)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode_all(mut bytes: &[u8], piece: usize) -> Result<Vec<Frame>, FrameError> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        while !bytes.is_empty() {
            let (used, frame) = decoder.push(&bytes[..piece.min(bytes.len())])?;
            frames.extend(frame);
            bytes = &bytes[used..];
        }
        Ok(frames)
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (1u8..=9, any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(kind, id, payload)| Frame {
                kind: FrameKind::of(kind).expect("in range"),
                id,
                payload,
            });
        proptest::collection::vec(frame, 0..12)
    }

    proptest! {
        #[test]
        fn frames_survive_any_chunking(frames in frames(), piece in 1usize..64) {
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            prop_assert_eq!(decode_all(&bytes, piece).expect("sound"), frames);
        }

        #[test]
        fn rubbish_never_panics_nor_allocates_beyond_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            if let Ok(frames) = decode_all(&bytes, 17) {
                prop_assert!(frames.iter().all(|f| f.payload.len() <= MAX_PAYLOAD_BYTES));
            }
        }

        #[test]
        fn a_flipped_header_bit_is_noticed(id in any::<u32>(), bit in 0usize..96) {
            let mut bytes = Frame { kind: FrameKind::Data, id, payload: vec![] }.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode_all(&bytes, 64), Err(FrameError::Header));
        }
    }

    #[test]
    fn only_a_data_frame_without_content_yet_can_be_taken_over() {
        let frame = |kind| Frame { kind, id: 5, payload: vec![1; 40] }.to_bytes();
        let taken_over = |bytes: &[u8], min_len| {
            let mut decoder = Decoder::default();
            decoder.push(bytes).expect("sound");
            (decoder.take_over(min_len), decoder.mid_frame())
        };
        let data = frame(FrameKind::Data);
        assert_eq!(taken_over(&data[..HEADER_LEN], 40), (Some((5, 40)), false));
        assert_eq!(taken_over(&data[..HEADER_LEN], 41), (None, true));
        assert_eq!(taken_over(&data[..HEADER_LEN + 1], 40), (None, true));
        assert_eq!(taken_over(&frame(FrameKind::Request)[..HEADER_LEN], 40), (None, true));
    }

    /// The layout is a contract with guests already running.
    #[test]
    fn golden_frame() {
        let frame = Frame { kind: FrameKind::Request, id: 7, payload: vec![0xaa] };
        assert_eq!(frame.to_bytes(), [0, 0, 0, 1, 3, 0, 0x84, 0xcf, 0, 0, 0, 7, 0xaa]);
    }
}
