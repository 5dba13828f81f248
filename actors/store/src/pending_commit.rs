//! Staging: turns requests into the changes of one commit.
//!
//! An invalid request is refused alone and changes nothing; the others of the same commit proceed.

use chrono::{DateTime, Utc};

use crate::changes::KeyChanges;
use crate::event::CommittedEvent;
use crate::index::JournalIndex;
use crate::keys::BaseKey;
use crate::request::WriteOperation;
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
