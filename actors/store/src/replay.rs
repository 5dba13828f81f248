//! Stream replay: reads a stream's snapshot and the records after it.

use crate::assemble;
use crate::index::follow;
use crate::keys::BaseKey;
use crate::{Error, Seq, StreamId};

/// Contents of a stream: apply the snapshot, then the records in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay {
    /// Last record that the snapshot covers, and the snapshot.
    pub snapshot: Option<(Seq, Vec<u8>)>,
    /// Records after the snapshot, without a gap.
    pub records: Vec<(Seq, Vec<u8>)>,
}

impl Replay {
    /// Last position in the stream, 0 when it is empty.
    pub fn last(&self) -> Seq {
        let covered = self.snapshot.as_ref().map_or(Seq::ZERO, |(upto, _)| *upto);
        self.records.last().map_or(covered, |(seq, _)| *seq)
    }
}

/// Reads one stream. A snapshot taken meanwhile restarts the read.
pub(crate) fn replay(db: &sled::Db, stream: &StreamId) -> Result<Replay, Error> {
    loop {
        let before = snapshot(db, stream)?;
        let records = records(db, stream, before.as_ref().map_or(Seq::ZERO, |(upto, _)| *upto));
        if snapshot(db, stream)? == before {
            return Ok(Replay { snapshot: before, records: records? });
        }
    }
}

fn snapshot(db: &sled::Db, stream: &StreamId) -> Result<Option<(Seq, Vec<u8>)>, Error> {
    Ok(assemble::snapshot(db, stream)?.map(|value| (value.seq, value.bytes)))
}

fn records(db: &sled::Db, stream: &StreamId, compacted: Seq) -> Result<Vec<(Seq, Vec<u8>)>, Error> {
    let mut last = compacted;
    let mut records = Vec::new();
    for value in assemble::records(db, stream) {
        let value = value?;
        if let BaseKey::Record(_, seq) = value.base {
            follow(last, seq, value.seq)
                .map_err(|what| Error::unreadable_at(stream, Some(seq), what))?;
            last = seq;
            records.push((seq, value.bytes));
        }
    }
    Ok(records)
}
