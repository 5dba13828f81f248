//! Value assembly: joins the pieces of a value while walking the database in key order.

use crate::error::IoContext;
use crate::keys::{self, BaseKey};
use crate::{Error, Seq, StreamId, frame};

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
        let (base, number) = keys::split_piece(&key)
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
        let (seq, bytes) = frame::unwrap(&base, &frame).map_err(|why| damaged(&what, why))?;
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
    StoredValues::new(db.scan_prefix(keys::records_of(stream)))
}

/// Snapshot of one stream.
pub(crate) fn snapshot(db: &sled::Db, stream: &StreamId) -> Result<Option<StoredValue>, Error> {
    StoredValues::new(db.scan_prefix(BaseKey::Snapshot(stream.clone()).encode())).next().transpose()
}
