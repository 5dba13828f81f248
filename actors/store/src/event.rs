//! Event records: what is published, stored and delivered.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Seq};

/// Event to publish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Kind of event, for example `workspace.started`.
    pub kind: String,
    /// Subject of the event, for example a workspace's id.
    pub subject: String,
    /// Data of the event, any JSON.
    pub data: Value,
}

/// Event that its writer puts together; `D` serializes to its data.
#[derive(Debug, Clone)]
pub struct MadeEvent<D> {
    /// Kind of event, as [`NewEvent::kind`].
    pub kind: &'static str,
    /// Subject of the event.
    pub subject: String,
    /// Data of the event. Its serialization must not fail.
    pub data: D,
}

/// Published event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEvent {
    /// Position in the one sequence of events: contiguous, from 1.
    pub seq: Seq,
    /// Time of the commit by the wall clock, which may step back.
    pub at: DateTime<Utc>,
    /// Kind of event.
    pub kind: String,
    /// Subject of the event.
    pub subject: String,
    /// Data of the event, any JSON.
    pub data: Value,
}

/// Kind of the event that reports how many events could not be queued. Its subject is `journal`,
/// its data `{"count": n}`.
pub(crate) const LOST_KIND: &str = "events.lost";

#[derive(Deserialize)]
struct Stored {
    at: DateTime<Utc>,
    kind: String,
    subject: String,
    data: Value,
}

/// Borrowing form of [`Stored`], for writing.
#[derive(Serialize)]
struct Storing<'a, D> {
    at: DateTime<Utc>,
    kind: &'a str,
    subject: &'a str,
    data: &'a D,
}

/// Event of a commit in the making: its bytes, or itself where it was there before its bytes were.
pub(crate) enum CommittedEvent {
    Made { seq: Seq, bytes: Vec<u8> },
    Given(JournalEvent),
}

impl CommittedEvent {
    /// The event, as subscribers get it.
    pub(crate) fn into_event(self) -> Result<JournalEvent, Error> {
        match self {
            Self::Made { seq, bytes } => JournalEvent::decode(seq, &bytes),
            Self::Given(event) => Ok(event),
        }
    }
}

impl<D: Serialize> MadeEvent<D> {
    /// Bytes to store, as [`NewEvent::encode`].
    pub(crate) fn encode(&self, at: DateTime<Utc>) -> Vec<u8> {
        let MadeEvent { kind, subject, data } = self;
        serde_json::to_vec(&Storing { at, kind, subject, data })
            .expect("the data of an event serializes")
    }
}

impl NewEvent {
    /// Bytes to store. The frame carries the sequence number.
    pub(crate) fn encode(&self, at: DateTime<Utc>) -> Vec<u8> {
        let NewEvent { kind, subject, data } = self;
        serde_json::to_vec(&Storing { at, kind, subject, data })
            .expect("strings, a time and a JSON value serialize")
    }

    pub(crate) fn into_event(self, seq: Seq, at: DateTime<Utc>) -> JournalEvent {
        JournalEvent { seq, at, kind: self.kind, subject: self.subject, data: self.data }
    }

    /// Approximate size in memory.
    pub(crate) fn weight(&self) -> usize {
        fn of(value: &Value) -> usize {
            16 + match value {
                Value::String(text) => text.len(),
                Value::Array(items) => items.iter().map(of).sum(),
                Value::Object(map) => map.iter().map(|(key, item)| key.len() + of(item)).sum(),
                _ => 0,
            }
        }
        64 + self.kind.len() + self.subject.len() + of(&self.data)
    }
}

impl JournalEvent {
    pub(crate) fn decode(seq: Seq, bytes: &[u8]) -> Result<Self, Error> {
        let stored: Stored = serde_json::from_slice(bytes)
            .map_err(|error| Error::unreadable_event(seq, error.to_string()))?;
        let Stored { at, kind, subject, data } = stored;
        Ok(JournalEvent { seq, at, kind, subject, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_and_weighs_what_is_in_it() {
        let data = serde_json::json!({ "ab": ["xyz", 1, null] });
        let event = NewEvent { kind: "k".to_owned(), subject: "su".to_owned(), data: data.clone() };
        // The event, its kind and subject, a map with its key, a list, a text and two others.
        assert_eq!(event.weight(), 64 + 1 + 2 + (16 + 2) + 16 + (16 + 3) + 16 + 16);
        let (seq, at) = (Seq::new(3), DateTime::from_timestamp(5, 0).unwrap());
        let given = event.clone().into_event(seq, at);
        assert_eq!(JournalEvent::decode(seq, &event.encode(at)).unwrap(), given);
        let made = MadeEvent { kind: "k", subject: "su".to_owned(), data };
        assert_eq!(made.encode(at), event.encode(at));
        assert!(JournalEvent::decode(seq, b"{}").is_err());
        let made = CommittedEvent::Made { seq, bytes: event.encode(at) };
        let events =
            [made, CommittedEvent::Given(given.clone())].map(|one| one.into_event().unwrap());
        assert_eq!(events, [given.clone(), given]);
    }
}
