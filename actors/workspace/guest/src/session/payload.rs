//! A data frame's payload, received to where a disk can take it from.

use bytes::{BufMut, buf::Limit};
use hivekeep_protocol::Stream;

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
