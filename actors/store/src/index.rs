//! In-memory index: the positions of all streams and of the events, built at start-up, then
//! maintained by the writer; and the replay of a stream, its snapshot and the records after it.

use std::collections::{BTreeSet, HashMap};

use crate::error::IoContext;
use crate::values::{self, BaseKey, StoredValue, StoredValues};
use crate::{Error, Seq, StreamId};

/// State of one stream: a snapshot of everything up to `compacted`, then the records `compacted + 1
/// ..= last`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) has_snapshot: bool,
    pub(crate) compacted: Seq,
    pub(crate) last: Seq,
}

/// Range of the events that are kept: `oldest ..= last`; empty when `oldest > last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventRange {
    pub(crate) oldest: Seq,
    pub(crate) last: Seq,
}

#[derive(Debug)]
pub(crate) struct JournalIndex {
    pub(crate) streams: HashMap<StreamId, StreamState>,
    pub(crate) events: EventRange,
    pub(crate) records: u64,
}

impl JournalIndex {
    /// Reads every value and checks its frame and that no number is missing.
    pub(crate) fn build(db: &sled::Db) -> Result<Self, Error> {
        let mut streams = HashMap::<StreamId, StreamState>::new();
        for value in StoredValues::new(db.scan_prefix([values::SNAPSHOT])) {
            let value = value?;
            if let BaseKey::Snapshot(stream) = value.base {
                let seq = value.seq;
                let state = StreamState { has_snapshot: true, compacted: seq, last: seq };
                streams.insert(stream, state);
            }
        }
        let mut records = 0;
        for value in StoredValues::new(db.scan_prefix([values::RECORD])) {
            let value = value?;
            if let BaseKey::Record(stream, seq) = value.base {
                let state = streams.entry(stream.clone()).or_default();
                follow(state.last, seq, value.seq)
                    .map_err(|what| Error::unreadable_at(&stream, Some(seq), what))?;
                state.last = seq;
                records += 1;
            }
        }
        Ok(JournalIndex { streams, events: events(db)?, records })
    }
}

fn events(db: &sled::Db) -> Result<EventRange, Error> {
    let mut range = EventRange { oldest: Seq::FIRST, last: Seq::ZERO };
    for value in StoredValues::new(db.scan_prefix([values::EVENT])) {
        let value = value?;
        if let BaseKey::Event(seq) = value.base {
            if range.last == Seq::ZERO {
                range = EventRange { oldest: seq, last: seq.prev() };
            }
            follow(range.last, seq, value.seq)
                .map_err(|what| Error::unreadable_event(seq, what))?;
            range.last = seq;
        }
    }
    Ok(range)
}

/// Checks that `seq` comes right after `last` and that the frame agrees.
pub(crate) fn follow(last: Seq, seq: Seq, framed: Seq) -> Result<(), String> {
    if framed != seq {
        return Err(format!("the frame says {framed}"));
    }
    if seq != last.next() {
        return Err(format!("{} was expected: records are missing", last.next()));
    }
    Ok(())
}

/// Names of the streams that start with `prefix`, sorted.
pub(crate) fn streams(db: &sled::Db, prefix: &str) -> Result<Vec<StreamId>, Error> {
    let mut names = BTreeSet::new();
    for tag in [values::RECORD, values::SNAPSHOT] {
        let within = [&[tag], prefix.as_bytes()].concat();
        let mut from = within.clone();
        // Looks up once per stream: from its first key to behind its last.
        while let Some(pair) = db.range(from..).next() {
            let (key, _) = pair.doing("reading the database")?;
            if !key.starts_with(&within) {
                break;
            }
            let name = key[1..].split(|byte| *byte == 0).next().unwrap_or_default();
            names.insert(StreamId::parse(&String::from_utf8_lossy(name))?);
            from = [&[tag], name, &[1]].concat();
        }
    }
    Ok(names.into_iter().collect())
}

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
        let compacted = before.as_ref().map_or(Seq::ZERO, |(upto, _)| *upto);
        let records = records(stream, values::records(db, stream), compacted);
        if snapshot(db, stream)? == before {
            return Ok(Replay { snapshot: before, records: records? });
        }
    }
}

/// Records of a stream without a snapshot behind a position, at most so many.
pub(crate) fn replay_behind(
    db: &sled::Db,
    stream: &StreamId,
    after: Seq,
    most: usize,
) -> Result<Vec<(Seq, Vec<u8>)>, Error> {
    records(stream, values::records_behind(db, stream, after).take(most), after)
}

fn snapshot(db: &sled::Db, stream: &StreamId) -> Result<Option<(Seq, Vec<u8>)>, Error> {
    Ok(values::snapshot(db, stream)?.map(|value| (value.seq, value.bytes)))
}

/// Records of a stream behind a position, none of which is missing.
fn records(
    stream: &StreamId,
    values: impl Iterator<Item = Result<StoredValue, Error>>,
    mut last: Seq,
) -> Result<Vec<(Seq, Vec<u8>)>, Error> {
    let mut records = Vec::new();
    for value in values {
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
