//! What is written of an inbox, in its stream `mailbox/<team id>_<number of the member>`.
//!
//! A record is a line of JSON and, of a message, its content as it is: escaped, a content of
//! control characters would not fit. A snapshot is the records of what is there, each after its
//! length.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::book::Message;

const KIND: &str = "mailbox";

/// The stream of a team's member.
pub(crate) fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    StreamId::new(KIND, &id).expect("an id and a number have only letters, digits and `_`")
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A message came.
    Put(Message),
    /// These are gone.
    Taken(Vec<MessageId>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Head {
    Put { id: MessageId, from: String, to: String, kind: String, at: DateTime<Utc> },
    Taken { ids: Vec<MessageId> },
}

/// A record that makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a content is no UTF-8")]
    Content(#[from] std::string::FromUtf8Error),
    #[error("a record is cut short")]
    Short,
}

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let (head, content) = match record {
        Record::Put(message) => {
            let Message { id, from, to, kind, at, content } = message.clone();
            (Head::Put { id, from, to, kind, at }, content)
        }
        Record::Taken(ids) => (Head::Taken { ids: ids.clone() }, String::new()),
    };
    let mut bytes = serde_json::to_vec(&head).expect("plain data");
    bytes.push(b'\n');
    bytes.extend_from_slice(content.as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Record, Unreadable> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(Unreadable::Short)?;
    Ok(match serde_json::from_slice(&bytes[..end])? {
        Head::Put { id, from, to, kind, at } => {
            let content = String::from_utf8(bytes[end + 1..].to_vec())?;
            Record::Put(Message { id, from, to, kind, content, at })
        }
        Head::Taken { ids } => Record::Taken(ids),
    })
}

pub(crate) fn snapshot<'m>(messages: impl Iterator<Item = &'m Message>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let record = encode(&Record::Put(message.clone()));
        let length = u32::try_from(record.len()).expect("contents are bounded");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    bytes
}

fn unfold(mut bytes: &[u8]) -> Result<Vec<Message>, Unreadable> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or(Unreadable::Short)?;
        if let Record::Put(message) = decode(record)? {
            messages.push(message);
        }
        bytes = rest;
    }
    if bytes.is_empty() { Ok(messages) } else { Err(Unreadable::Short) }
}

/// What is in the inbox, the oldest first.
pub(crate) fn replay(
    snapshot: Option<&[u8]>,
    records: &[Vec<u8>],
) -> Result<Vec<Message>, Unreadable> {
    let mut messages = unfold(snapshot.unwrap_or_default())?;
    let mut gone = BTreeSet::new();
    for record in records {
        match decode(record)? {
            Record::Put(message) => messages.push(message),
            Record::Taken(ids) => gone.extend(ids),
        }
    }
    messages.retain(|message| !gone.contains(&message.id));
    Ok(messages)
}
