//! Key codec of the database, including the split of values into pieces.
//!
//! ```text
//! e <seq:8> <piece:2>                     an event
//! m <name>                                about the database itself
//! r <stream> 00 <seq:8> <piece:2>         a record
//! s <stream> 00 <piece:2>                 the stream's snapshot
//! ```
//!
//! Numbers are big-endian, so keys sort as the numbers do. All keys share one tree, because a batch
//! is atomic in one tree only, and a record and its event must commit together.
//!
//! A value is cut into pieces of [`PIECE_BYTES`]. A database page holds up to about 17 pairs; a
//! page above 128 KiB is written to a file of its own that the database never fsyncs, so no page
//! may grow that large.

use crate::{Error, Seq, StreamId};

/// Size of a piece: 17 pairs of it, with their keys, stay well below 128 KiB.
pub(crate) const PIECE_BYTES: usize = 4096;

pub(crate) const EVENT: u8 = b'e';
pub(crate) const META: u8 = b'm';
pub(crate) const RECORD: u8 = b'r';
pub(crate) const SNAPSHOT: u8 = b's';

pub(crate) const COMMIT_KEY: &[u8] = b"mcommit";
pub(crate) const SCHEMA_KEY: &[u8] = b"mschema";
pub(crate) const STORE_KEY: &[u8] = b"mstore";

/// Decoded key, without its piece number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BaseKey {
    Event(Seq),
    Record(StreamId, Seq),
    Snapshot(StreamId),
}

impl BaseKey {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            BaseKey::Event(seq) => [&[EVENT][..], &seq.get().to_be_bytes()].concat(),
            BaseKey::Record(stream, seq) => {
                [&records_of(stream)[..], &seq.get().to_be_bytes()].concat()
            }
            BaseKey::Snapshot(stream) => named(SNAPSHOT, stream),
        }
    }

    pub(crate) fn decode(key: &[u8]) -> Result<Self, Error> {
        Self::try_decode(key)
            .ok_or_else(|| Error::unreadable(format!("an unknown key {}", key.escape_ascii())))
    }

    fn try_decode(key: &[u8]) -> Option<Self> {
        let (tag, rest) = key.split_first()?;
        match *tag {
            EVENT => Some(BaseKey::Event(seq(rest)?)),
            RECORD => {
                let (stream, rest) = name(rest)?;
                Some(BaseKey::Record(stream, seq(rest)?))
            }
            SNAPSHOT => {
                let (stream, rest) = name(rest)?;
                rest.is_empty().then_some(BaseKey::Snapshot(stream))
            }
            _ => None,
        }
    }
}

fn seq(bytes: &[u8]) -> Option<Seq> {
    Some(Seq::new(u64::from_be_bytes(bytes.try_into().ok()?)))
}

fn name(rest: &[u8]) -> Option<(StreamId, &[u8])> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let stream = StreamId::parse(std::str::from_utf8(&rest[..end]).ok()?).ok()?;
    Some((stream, &rest[end + 1..]))
}

fn named(tag: u8, stream: &StreamId) -> Vec<u8> {
    [&[tag][..], stream.as_str().as_bytes(), &[0]].concat()
}

/// Prefix of a stream's records.
pub(crate) fn records_of(stream: &StreamId) -> Vec<u8> {
    named(RECORD, stream)
}

/// Key of one piece of a value.
pub(crate) fn piece(base: &[u8], number: u16) -> Vec<u8> {
    [base, &number.to_be_bytes()].concat()
}

/// Splits a key into base and piece number.
pub(crate) fn split_piece(key: &[u8]) -> Option<(&[u8], u16)> {
    let (base, number) = key.split_last_chunk::<2>()?;
    Some((base, u16::from_be_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_sort_as_numbers() {
        let stream = StreamId::parse("a/b").unwrap();
        let bases = [
            BaseKey::Event(Seq::new(300)),
            BaseKey::Record(stream.clone(), Seq::new(255)),
            BaseKey::Record(stream.clone(), Seq::new(256)),
            BaseKey::Snapshot(stream),
        ];
        for base in &bases {
            assert_eq!(BaseKey::decode(&base.encode()).unwrap(), *base);
        }
        assert!(bases[1].encode() < bases[2].encode());
        for bad in [&b""[..], b"x", b"e1234567", b"ra/b\x0012345678-", b"sa/b", b"sa/b\0-"] {
            assert!(BaseKey::decode(bad).is_err(), "{bad:?}");
        }
    }
}
