//! Values in the database: the codec of their keys, the frame around each, and their assembly from pieces.
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
//!
//! The frame is a checksummed header, so that damage shows on reading:
//!
//! ```text
//! <format:1> <crc32:4> <seq:8> <length:4> <bytes>
//! ```
//!
//! The checksum covers the base key, the sequence number and the bytes: a value that turns up under
//! another key does not pass.

use crate::error::IoContext;
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
fn records_of(stream: &StreamId) -> Vec<u8> {
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

/// Checked value: its base key, sequence number and bytes.
#[derive(Debug)]
pub(crate) struct StoredValue {
    pub(crate) base: BaseKey,
    pub(crate) seq: Seq,
    pub(crate) bytes: Vec<u8>,
}

/// Iterator over the values of a key range; a value out of order or damaged is an error, after
/// which the iteration ends.
pub(crate) struct StoredValues {
    pairs: sled::Iter,
    ahead: Option<(Vec<u8>, u16, sled::IVec)>,
    done: bool,
}

impl StoredValues {
    pub(crate) fn new(pairs: sled::Iter) -> Self {
        StoredValues { pairs, ahead: None, done: false }
    }

    fn pull(&mut self) -> Result<Option<(Vec<u8>, u16, sled::IVec)>, Error> {
        let Some(pair) = self.pairs.next() else { return Ok(None) };
        let (key, bytes) = pair.doing("reading the database")?;
        let (base, number) = split_piece(&key)
            .ok_or_else(|| Error::unreadable(format!("an unknown key {}", key.escape_ascii())))?;
        Ok(Some((base.to_vec(), number, bytes)))
    }

    fn value(&mut self) -> Result<Option<StoredValue>, Error> {
        let first = match self.ahead.take() {
            Some(piece) => Some(piece),
            None => self.pull()?,
        };
        let Some((base, number, bytes)) = first else { return Ok(None) };
        let what = BaseKey::decode(&base)?;
        if number != 0 {
            return Err(damaged(&what, format!("piece {number} without the ones before it")));
        }
        let mut frame = bytes.to_vec();
        let mut expected = 1;
        while let Some((next_base, number, bytes)) = self.pull()? {
            if next_base != base {
                self.ahead = Some((next_base, number, bytes));
                break;
            }
            if number != expected {
                return Err(damaged(&what, format!("piece {expected} is missing")));
            }
            expected += 1;
            frame.extend_from_slice(&bytes);
        }
        let (seq, bytes) = unwrap(&base, &frame).map_err(|why| damaged(&what, why))?;
        Ok(Some(StoredValue { seq, bytes: bytes.to_vec(), base: what }))
    }
}

impl Iterator for StoredValues {
    type Item = Result<StoredValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let value = self.value().transpose();
        self.done = !matches!(value, Some(Ok(_)));
        value
    }
}

fn damaged(base: &BaseKey, what: String) -> Error {
    match base {
        BaseKey::Event(seq) => Error::unreadable_event(*seq, what),
        BaseKey::Record(stream, seq) => Error::unreadable_at(stream, Some(*seq), what),
        BaseKey::Snapshot(stream) => {
            Error::unreadable_at(stream, None, format!("snapshot: {what}"))
        }
    }
}

/// Records of one stream, in order.
pub(crate) fn records(db: &sled::Db, stream: &StreamId) -> StoredValues {
    StoredValues::new(db.scan_prefix(records_of(stream)))
}

/// Records of one stream behind a position, in order.
pub(crate) fn records_behind(db: &sled::Db, stream: &StreamId, after: Seq) -> StoredValues {
    let key = |seq| BaseKey::Record(stream.clone(), seq).encode();
    StoredValues::new(db.range(key(after.next())..key(Seq::new(u64::MAX))))
}

/// Snapshot of one stream.
pub(crate) fn snapshot(db: &sled::Db, stream: &StreamId) -> Result<Option<StoredValue>, Error> {
    StoredValues::new(db.scan_prefix(BaseKey::Snapshot(stream.clone()).encode())).next().transpose()
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
