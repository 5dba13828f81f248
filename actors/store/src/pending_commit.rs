//! Staging: turns requests into the changes of one commit, its write set.
//!
//! An invalid request is refused alone and changes nothing; the others of the same commit proceed.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::error::IoContext;
use crate::event::CommittedEvent;
use crate::index::JournalIndex;
use crate::request::WriteOperation;
use crate::values::{self, BaseKey, PIECE_BYTES};
use crate::{Error, NewEvent, Options, Seq, StreamId};

/// Maximum number of events one commit trims, so that it stays short.
const TRIM_MAX: u64 = 1000;

/// Commit in the making.
pub(crate) struct PendingCommit<'a> {
    pub(crate) db: &'a sled::Db,
    pub(crate) index: &'a mut JournalIndex,
    pub(crate) options: &'a Options,
    pub(crate) now: DateTime<Utc>,
    pub(crate) changes: KeyChanges,
    pub(crate) events: Vec<CommittedEvent>,
    pub(crate) records: u64,
}

/// Result of one request: a refusal concerns that request; a failure ends the writer.
pub(crate) enum RequestOutcome {
    Done(Seq),
    Refused(Error),
    Failed(Error),
}

impl PendingCommit<'_> {
    pub(crate) fn apply(&mut self, work: WriteOperation) -> RequestOutcome {
        match work {
            WriteOperation::Append { stream, records, events } => {
                let seq = self.append(stream, &records);
                for event in events {
                    self.publish(event);
                }
                RequestOutcome::Done(seq)
            }
            WriteOperation::Publish { event } => RequestOutcome::Done(self.publish(event)),
            WriteOperation::PublishMade { make, .. } => {
                let bytes = make(self.now);
                let seq = self.write_event(&bytes);
                self.events.push(CommittedEvent::Made { seq, bytes });
                RequestOutcome::Done(seq)
            }
            WriteOperation::Snapshot { stream, upto, bytes } => self.snapshot(stream, upto, &bytes),
            WriteOperation::Forget { stream } => match self.forget(&stream) {
                Ok(last) => RequestOutcome::Done(last),
                Err(error) => RequestOutcome::Failed(error),
            },
            WriteOperation::Fence | WriteOperation::Close => RequestOutcome::Done(Seq::ZERO),
        }
    }

    fn append(&mut self, stream: StreamId, records: &[Vec<u8>]) -> Seq {
        let state = self.index.streams.entry(stream.clone()).or_default();
        for bytes in records {
            state.last = state.last.next();
            self.changes.write_new(&BaseKey::Record(stream.clone(), state.last), state.last, bytes);
        }
        self.records += records.len() as u64;
        state.last
    }

    pub(crate) fn publish(&mut self, event: NewEvent) -> Seq {
        let seq = self.write_event(&event.encode(self.now));
        self.events.push(CommittedEvent::Given(event.into_event(seq, self.now)));
        seq
    }

    fn write_event(&mut self, bytes: &[u8]) -> Seq {
        let seq = self.index.events.last.next();
        self.index.events.last = seq;
        self.changes.write_new(&BaseKey::Event(seq), seq, bytes);
        seq
    }

    fn snapshot(&mut self, stream: StreamId, upto: Seq, bytes: &[u8]) -> RequestOutcome {
        let state = self.index.streams.get(&stream).copied().unwrap_or_default();
        if upto < state.compacted || upto > state.last {
            return RequestOutcome::Refused(Error::invalid(format!(
                "a snapshot of {stream} up to {upto}: it must be in {}..={}",
                state.compacted, state.last
            )));
        }
        let done = (|| {
            self.erase_records(&stream, state.compacted, upto)?;
            self.changes.replace(self.db, &BaseKey::Snapshot(stream.clone()), upto, bytes)
        })();
        if let Err(error) = done {
            return RequestOutcome::Failed(error);
        }
        let state = self.index.streams.entry(stream).or_default();
        state.has_snapshot = true;
        state.compacted = upto;
        RequestOutcome::Done(upto)
    }

    fn forget(&mut self, stream: &StreamId) -> Result<Seq, Error> {
        let Some(state) = self.index.streams.remove(stream) else { return Ok(Seq::ZERO) };
        self.erase_records(stream, state.compacted, state.last)?;
        if state.has_snapshot {
            self.changes.erase(self.db, &BaseKey::Snapshot(stream.clone()))?;
        }
        Ok(state.last)
    }

    /// Erases the records after `from`, up to and including `upto`.
    fn erase_records(&mut self, stream: &StreamId, from: Seq, upto: Seq) -> Result<(), Error> {
        for number in from.get() + 1..=upto.get() {
            self.changes.erase(self.db, &BaseKey::Record(stream.clone(), Seq::new(number)))?;
        }
        Ok(())
    }

    /// Trims old events when enough of them have gathered.
    pub(crate) fn trim_events(&mut self) -> Result<(), Error> {
        let range = &mut self.index.events;
        let kept = range.last.get() + 1 - range.oldest.get();
        let slack = (self.options.events_kept / 10).min(TRIM_MAX);
        if kept <= self.options.events_kept + slack {
            return Ok(());
        }
        for _ in 0..(kept - self.options.events_kept).min(2 * TRIM_MAX) {
            self.changes.erase(self.db, &BaseKey::Event(range.oldest))?;
            range.oldest = range.oldest.next();
        }
        Ok(())
    }
}

/// Change of one key.
pub(crate) enum KeyChange {
    /// The key must not exist: acknowledged records are never overwritten.
    New(Vec<u8>),
    /// The key may exist.
    Put(Vec<u8>),
    Delete,
}

/// Changes gathered for one commit. Later changes see earlier ones.
#[derive(Default)]
pub(crate) struct KeyChanges {
    pending: BTreeMap<Vec<u8>, KeyChange>,
}

impl KeyChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Puts a pair, overwriting any present one.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.pending.insert(key, KeyChange::Put(value));
    }

    /// Deletes a pair.
    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.pending.insert(key, KeyChange::Delete);
    }

    fn has(&self, db: &sled::Db, key: &[u8]) -> Result<bool, Error> {
        match self.pending.get(key) {
            Some(KeyChange::New(_) | KeyChange::Put(_)) => Ok(true),
            Some(KeyChange::Delete) => Ok(false),
            None => db.contains_key(key).doing("reading the database"),
        }
    }

    /// Writes a value that must be new, cut into pieces.
    pub(crate) fn write_new(&mut self, base: &BaseKey, seq: Seq, bytes: &[u8]) {
        let base = base.encode();
        for (number, piece) in (0..).zip(values::wrap(&base, seq, bytes).chunks(PIECE_BYTES)) {
            let key = values::piece(&base, number);
            // A key deleted earlier in this commit still exists on disk.
            let change = match self.pending.get(&key) {
                Some(_) => KeyChange::Put(piece.to_vec()),
                None => KeyChange::New(piece.to_vec()),
            };
            self.pending.insert(key, change);
        }
    }

    /// Replaces a present value.
    pub(crate) fn replace(
        &mut self,
        db: &sled::Db,
        base: &BaseKey,
        seq: Seq,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.erase(db, base)?;
        let base = base.encode();
        for (number, piece) in (0..).zip(values::wrap(&base, seq, bytes).chunks(PIECE_BYTES)) {
            self.put(values::piece(&base, number), piece.to_vec());
        }
        Ok(())
    }

    /// Deletes a value with all its pieces.
    fn erase(&mut self, db: &sled::Db, base: &BaseKey) -> Result<(), Error> {
        let base = base.encode();
        for number in 0..=u16::MAX {
            let key = values::piece(&base, number);
            if !self.has(db, &key)? {
                break;
            }
            self.delete(key);
        }
        Ok(())
    }

    pub(crate) fn into_pairs(self) -> impl Iterator<Item = (Vec<u8>, KeyChange)> {
        self.pending.into_iter()
    }
}
