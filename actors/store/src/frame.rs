//! Frame codec: a checksummed header around every value, so that damage shows on reading.
//!
//! ```text
//! <format:1> <crc32:4> <seq:8> <length:4> <bytes>
//! ```
//!
//! The checksum covers the base key, the sequence number and the bytes: a value that turns up under
//! another key does not pass.

use crate::Seq;

/// Only format so far.
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 17;

/// Wraps `bytes` for the key `base`.
pub(crate) fn wrap(base: &[u8], seq: Seq, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("values are limited to far below 4 GiB");
    let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
    frame.push(FORMAT);
    frame.extend_from_slice(&checksum(base, seq, bytes).to_le_bytes());
    frame.extend_from_slice(&seq.get().to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(bytes);
    frame
}

/// Checks a frame found under `base`; the error says what is wrong.
pub(crate) fn unwrap<'a>(base: &[u8], frame: &'a [u8]) -> Result<(Seq, &'a [u8]), String> {
    let Some((header, bytes)) = frame.split_first_chunk::<HEADER_BYTES>() else {
        return Err(format!("a frame of {} bytes is cut short", frame.len()));
    };
    if header[0] != FORMAT {
        return Err(format!("record format {} is unknown, known is {FORMAT}", header[0]));
    }
    let number = |from: usize, to: usize| {
        header[from..to].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let seq = Seq::new(number(5, 13));
    if number(13, 17) != bytes.len() as u64 {
        return Err(format!("the frame says {} bytes, it has {}", number(13, 17), bytes.len()));
    }
    if number(1, 5) != u64::from(checksum(base, seq, bytes)) {
        return Err("the checksum does not match".into());
    }
    Ok((seq, bytes))
}

fn checksum(base: &[u8], seq: Seq, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(base);
    hasher.update(&seq.get().to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let frame = wrap(b"key", Seq::new(7), b"payload");
        assert_eq!(unwrap(b"key", &frame).unwrap(), (Seq::new(7), &b"payload"[..]));
        assert!(unwrap(b"kez", &frame).is_err());
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unwrap(b"key", &damaged).is_err(), "bit {bit}");
        }
        for end in 0..frame.len() {
            assert!(unwrap(b"key", &frame[..end]).is_err(), "cut at {end}");
        }
    }
}
