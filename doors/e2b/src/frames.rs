//! Envelopes of Connect's streams: a byte of flags, a length of four bytes, and a message of JSON.

use bytes::{BufMut as _, Bytes, BytesMut};
use hivekeep_door_server::incoming::SHORT_BYTES;
use hivekeep_runtime::json_text;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::E2bError;

/// Flag of the last envelope of an answer.
const END: u8 = 2;
/// Flag of a compressed message.
const COMPRESSED: u8 = 1;
const HEAD_BYTES: usize = 5;

/// A message in its envelope.
pub(super) fn message(message: &Value) -> Bytes {
    envelope(0, message)
}

/// The end of a stream, with what went wrong if something did.
pub(super) fn end(error: Option<&E2bError>) -> Bytes {
    let last = error.map_or_else(|| json!({}), |error| json!({ "error": error.of_rpc() }));
    envelope(END, &last)
}

fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + text.len());
    bytes.put_u8(flags);
    // Messages are made of reads of some hundred kilobytes.
    bytes.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.put_slice(text.as_bytes());
    bytes.freeze()
}

/// Messages of a stream that arrives in pieces.
#[derive(Debug)]
pub(super) struct FrameReader {
    come: BytesMut,
    /// The longest message of a client.
    most_bytes: usize,
}

impl FrameReader {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { come: BytesMut::new(), most_bytes }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.come.extend_from_slice(piece);
    }

    /// Takes memory for an envelope of so many bytes, and no more.
    pub(super) fn make_room(&mut self, length: usize) {
        self.come.reserve(length.saturating_sub(self.come.len()));
    }

    /// Bytes of the next envelope, once its head is there.
    ///
    /// # Errors
    /// For one that is too long or compressed.
    pub(super) fn length(&self) -> Result<Option<usize>, E2bError> {
        let Some((&[flags, a, b, c, d], _)) = self.come.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let (length, most) = (u32::from_be_bytes([a, b, c, d]) as usize, self.most_bytes);
        if length > most {
            let why = format!("a message has {length} bytes, and may have {most}");
            return Err(E2bError::invalid(why));
        }
        if flags & COMPRESSED != 0 {
            return Err(E2bError::unsupported("the compression of messages"));
        }
        Ok(Some(HEAD_BYTES + length))
    }

    /// The next message, once it is whole.
    ///
    /// # Errors
    /// For one that is too long, compressed, or not valid.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, E2bError> {
        let Some(length) = self.length()?.filter(|length| *length <= self.come.len()) else {
            return Ok(None);
        };
        let envelope = self.come.split_to(length);
        // The memory of a long one goes with it.
        if length > SHORT_BYTES {
            self.come = BytesMut::from(&*self.come);
        }
        let message = json_text::body(envelope.get(HEAD_BYTES..).unwrap_or_default());
        message.map(Some).map_err(|error| E2bError::invalid(format!("the message: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let (one, two) = (json!({ "a": 1 }), json!({ "b": "x".repeat(70_000) }));
        let bytes = [message(&one), message(&two)].concat();
        for step in [1, 3, 7, bytes.len()] {
            let (mut reader, mut read) = (FrameReader::new(100_000), Vec::new());
            for piece in bytes.chunks(step) {
                reader.push(piece);
                while let Some(value) = reader.next::<Value>().expect("valid") {
                    read.push(value);
                }
            }
            assert_eq!(read, [one.clone(), two.clone()], "{step}");
        }
    }

    #[test]
    fn texts_that_are_cut_within_a_letter_are_read() {
        let cut = br#"{"a":"cut \ud83d"}"#;
        let mut reader = FrameReader::new(1_000);
        reader.push(&[&[0, 0, 0, 0, u8::try_from(cut.len()).expect("short")], &cut[..]].concat());
        assert_eq!(reader.next::<Value>().expect("valid"), Some(json!({ "a": "cut \u{fffd}" })));
    }

    #[test]
    fn numbers_and_nulls_are_read_however_they_are_spelled() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Resize {
            cols: u16,
            #[serde(default)]
            tag: String,
        }
        let mut reader = FrameReader::new(1_000);
        reader.push(&message(&json!({ "cols": 80.0, "tag": null })));
        let read = reader.next::<Resize>().expect("valid");
        assert_eq!(read, Some(Resize { cols: 80, tag: String::new() }));
    }

    #[test]
    fn the_memory_of_a_long_message_goes_with_it() {
        let mut reader = FrameReader::new(1_000_000);
        reader.push(&[message(&json!("x".repeat(500_000))), message(&json!(1))].concat());
        assert!(reader.next::<Value>().expect("valid").is_some());
        assert!(reader.come.capacity() < 1_000, "{}", reader.come.capacity());
        assert_eq!(reader.next::<Value>().expect("valid"), Some(json!(1)));
    }

    #[test]
    fn hostile_envelopes_are_refused() {
        let next = |bytes: &[u8]| {
            let mut reader = FrameReader::new(1_000);
            reader.push(bytes);
            reader.next::<Value>()
        };
        assert!(next(&[0, 0xff, 0xff, 0xff, 0xff]).is_err(), "too long");
        assert!(next(&[0, 0, 0, 3, 0xe9]).is_err(), "too long by one");
        assert!(next(&[1, 0, 0, 0, 0]).is_err(), "compressed");
        assert!(next(&[0, 0, 0, 0, 1, b'{']).is_err(), "not JSON");
        assert!(next(&[0, 0, 0, 0]).expect("no more yet").is_none());
    }

    #[test]
    fn the_end_names_what_went_wrong() {
        let error = E2bError::new(Kind::DeadlineExceeded, "too late");
        let bytes = end(Some(&error));
        assert_eq!(bytes[0], END);
        let text = std::str::from_utf8(&bytes[HEAD_BYTES..]).expect("text");
        assert!(text.contains("deadline_exceeded") && text.contains("too late"), "{text}");
        assert_eq!(&end(None)[HEAD_BYTES..], b"{}");
    }
}
