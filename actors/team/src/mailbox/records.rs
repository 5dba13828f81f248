//! What is written of an inbox, in its stream `mailbox/<team id>_<number of the member>`.
//!
//! A record is a line of JSON and, of a message, its content as it is: escaped, a content of
//! control characters would not fit. A snapshot is the records of what is there, each after its
//! length.

use std::{borrow::Cow, collections::BTreeSet};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::book::{ENVELOPE_BYTES, Message};

const KIND: &str = "mailbox";

/// The stream of a team's member.
pub(crate) fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    StreamId::new(KIND, &id).expect("an id and a number have only letters, digits and `_`")
}

/// One record.
enum Record {
    /// A message came.
    Put(Message),
    /// These are gone.
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

/// A record that makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a content is no UTF-8")]
    Content(#[from] std::str::Utf8Error),
    #[error("a record is cut short")]
    Short,
}

pub(crate) fn put(message: &Message) -> Vec<u8> {
    let Message { id, from, to, kind, content, at } = message;
    let head = Head::Put {
        id: *id,
        from: Cow::Borrowed(from),
        to: Cow::Borrowed(to),
        kind: Cow::Borrowed(kind),
        at: *at,
    };
    encode(&head, content)
}

pub(crate) fn taken(ids: &[MessageId]) -> Vec<u8> {
    encode(&Head::Taken { ids: Cow::Borrowed(ids) }, "")
}

fn encode(head: &Head<'_>, content: &str) -> Vec<u8> {
    // Names and types are short.
    let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + content.len());
    serde_json::to_writer(&mut bytes, head).expect("plain data");
    bytes.push(b'\n');
    bytes.extend_from_slice(content.as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Record, Unreadable> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(Unreadable::Short)?;
    Ok(match serde_json::from_slice(&bytes[..end])? {
        Head::Put { id, from, to, kind, at } => {
            let content = std::str::from_utf8(&bytes[end + 1..])?.into();
            let (from, to, kind) = (from.into_owned(), to.into_owned(), kind.into_owned());
            Record::Put(Message { id, from, to, kind, content, at })
        }
        Head::Taken { ids } => Record::Taken(ids.into_owned()),
    })
}

pub(crate) fn snapshot(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let record = put(message);
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
