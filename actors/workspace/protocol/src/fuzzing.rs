//! Fuzz targets: the wire between daemon and guest, in both directions, in pieces of any size.

use crate::{Decoder, FrameKind, FromGuest, GuestError, GuestEvent, ToGuest, decode, encode};

/// Decodes frames and their payloads from bytes in pieces, whose size the first byte gives.
///
/// # Panics
/// When something is decoded that is encoded to something else.
pub fn frames(bytes: &[u8]) {
    let Some((piece, mut bytes)) = bytes.split_first() else { return };
    // The bytes as payloads, too: a frame's header seldom outlives a mutation.
    payload(FrameKind::Reply, bytes);
    payload(FrameKind::Event, bytes);
    payload(FrameKind::Request, bytes);
    let (piece, mut decoder) = (usize::from(*piece) + 1, Decoder::default());
    while !bytes.is_empty() {
        let Ok((used, frame)) = decoder.push(&bytes[..piece.min(bytes.len())]) else { return };
        bytes = &bytes[used..];
        if let Some(frame) = frame {
            payload(frame.kind, &frame.payload);
        }
    }
}

fn payload(kind: FrameKind, payload: &[u8]) {
    match kind {
        FrameKind::Reply => same::<Result<FromGuest, GuestError>>(payload),
        FrameKind::Event => same::<GuestEvent>(payload),
        FrameKind::Request => same::<ToGuest>(payload),
        _ => {}
    }
}

/// Checks that a decoded value is the same after it is encoded and decoded again.
fn same<T>(payload: &[u8])
where
    T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug,
{
    if let Ok(value) = decode::<T>(payload) {
        let again = encode(&value).expect("it fitted a frame");
        assert_eq!(decode::<T>(&again).expect("our own encoding"), value);
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("frames", frames);
}
