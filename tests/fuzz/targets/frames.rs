//! The wire between daemon and guest, in both directions, in pieces of any size.
#![no_main]

use hivekeep_protocol::{
    Decoder, FrameKind, FromGuest, GuestError, GuestEvent, ToGuest, decode, encode,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, mut bytes)) = bytes.split_first() else { return };
    let (piece, mut decoder) = (usize::from(*piece) + 1, Decoder::default());
    while !bytes.is_empty() {
        let Ok((used, frame)) = decoder.push(&bytes[..piece.min(bytes.len())]) else { return };
        bytes = &bytes[used..];
        let Some(frame) = frame else { continue };
        match frame.kind {
            FrameKind::Reply => same::<Result<FromGuest, GuestError>>(&frame.payload),
            FrameKind::Event => same::<GuestEvent>(&frame.payload),
            FrameKind::Request => same::<ToGuest>(&frame.payload),
            _ => {}
        }
    }
});

/// What is decoded is encoded to something that means the same.
fn same<T>(payload: &[u8])
where
    T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug,
{
    if let Ok(value) = decode::<T>(payload) {
        let again = encode(&value).expect("it fitted a frame");
        assert_eq!(decode::<T>(&again).expect("our own encoding"), value);
    }
}
