//! The records of an inbox, in its stream `mailbox/<team id>_<number of the member>`.
//!
//! A record is a line of JSON and, of a message, its content as it is: escaped, a content of
//! control characters would not fit. A snapshot is the records of what is there, each after its
//! length.

use std::{borrow::Cow, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_runtime::log::{self, LogRecord, Sourced};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::{ENVELOPE_BYTES, Inbox, Message};
use crate::snapshot;

/// The stream of a team's member.
pub fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    log::stream::<Inbox>(id).expect("an id and a number have only letters, digits and `_`")
}

/// Record of an inbox.
#[derive(Debug, Clone)]
pub enum Record {
    /// A message came.
    Put(Arc<Message>),
    /// Messages are gone.
    Taken(Vec<MessageId>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Head<'h> {
    Put {
        id: MessageId,
        from: Cow<'h, str>,
        to: Cow<'h, str>,
        kind: Cow<'h, str>,
        at: DateTime<Utc>,
    },
    Taken {
        ids: Cow<'h, [MessageId]>,
    },
}

impl LogRecord for Record {
    fn encode(&self) -> Result<Vec<u8>, String> {
        let (head, content) = match self {
            Self::Put(message) => {
                let Message { id, from, to, kind, content, at } = &**message;
                let (from, to, kind) = (from.into(), to.into(), kind.into());
                (Head::Put { id: *id, from, to, kind, at: *at }, &**content)
            }
            Self::Taken(ids) => (Head::Taken { ids: ids.into() }, ""),
        };
        // Names and types are short.
        let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + content.len());
        serde_json::to_writer(&mut bytes, &head).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        bytes.extend_from_slice(content.as_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("a record is cut short")?;
        let (head, content) = (&bytes[..end], &bytes[end + 1..]);
        Ok(match serde_json::from_slice(head).map_err(|error| error.to_string())? {
            Head::Put { id, from, to, kind, at } => {
                let content = std::str::from_utf8(content).map_err(|error| error.to_string())?;
                let (from, to, kind) = (from.into_owned(), to.into_owned(), kind.into_owned());
                Self::Put(Arc::new(Message { id, from, to, kind, content: content.into(), at }))
            }
            Head::Taken { ids } => Self::Taken(ids.into_owned()),
        })
    }
}

impl Sourced for Inbox {
    const KIND: &'static str = "mailbox";
    const FOLD_EVERY: usize = 512;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut inbox = Self::default();
        inbox.apply(record).map(|()| inbox)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Put(message) => self.put(message),
            // A snapshot of an earlier version has nothing of what was taken, written or not.
            Record::Taken(ids) => self.take(&ids.into_iter().collect()),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        snapshot::of(self.items().map(|message| Record::Put(message.clone())))
    }

    fn unfold(bytes: &[u8]) -> Result<Self, String> {
        let mut inbox = Self::default();
        for record in snapshot::records(bytes)? {
            // Each of them follows.
            drop(inbox.apply(record));
        }
        Ok(inbox)
    }
}
