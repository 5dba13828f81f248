//! A member's inbox: a bounded queue of messages, the oldest first. Pure.
//!
//! ```text
//! room ─► put ─► waits ─► delivered, as a lease ─► taken
//!                  ▲               │
//!                  └── not taken ──┘ redelivered
//! ```
//! The records add up to what was put and not taken, in the stream
//! `mailbox/<team id>_<number of the member>`. A record is a line of JSON and, of a message, its
//! content as it is: escaped, a content of control characters would not fit. A delivery is held
//! beside it, by the actor of the team: it ends with its incarnation, and what it held is delivered
//! again.

use std::{
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_runtime::log::{self, LogRecord, Sourced};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

/// The weight of a message beside its content.
const ENVELOPE_BYTES: usize = 512;

/// A message to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Shared by all recipients of a broadcast.
    pub id: MessageId,
    /// The member that sent it.
    pub from: String,
    /// To whom it was sent: a member, or `*`.
    pub to: String,
    /// The sender's word for what it is.
    pub kind: String,
    /// The text.
    pub content: Arc<str>,
    /// Time of the call that sent it.
    pub at: DateTime<Utc>,
}

/// An entry of an inbox.
pub trait Item: Clone {
    /// Unique in an inbox.
    fn id(&self) -> MessageId;

    /// Weight in an inbox, in bytes.
    fn weight(&self) -> usize;

    /// Bytes of JSON that it takes in an answer.
    fn answer_bytes(&self) -> usize;

    /// An upper bound of those, known at once.
    fn most_answer_bytes(&self) -> usize;
}

impl Item for Arc<Message> {
    fn id(&self) -> MessageId {
        self.id
    }

    fn weight(&self) -> usize {
        ENVELOPE_BYTES + self.content.len()
    }

    fn answer_bytes(&self) -> usize {
        let escaped = serde_json::to_string(&*self.content).map_or(0, |text| text.len());
        ENVELOPE_BYTES + escaped
    }

    fn most_answer_bytes(&self) -> usize {
        // A control character is written as six, and there are quotes.
        ENVELOPE_BYTES + 2 + 6 * self.content.len()
    }
}

/// The size of an inbox.
#[derive(Debug, Clone, Copy)]
pub struct InboxBounds {
    /// Messages that wait, at most.
    pub messages: usize,
    /// Bytes, as [`Item::weight`] counts them.
    pub bytes: usize,
}

/// An inbox without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{messages} messages of {bytes} bytes wait there")]
pub struct Full {
    /// Messages in it.
    pub messages: usize,
    /// Bytes in it.
    pub bytes: usize,
}

/// An inbox.
#[derive(Debug, Clone)]
pub struct Inbox<T = Arc<Message>> {
    items: VecDeque<T>,
    bytes: usize,
    /// Items that were put since it was read from the journal.
    arrivals: usize,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0, arrivals: 0 }
    }
}

impl<T: Item> Inbox<T> {
    /// Looks whether there is room for an item.
    ///
    /// # Errors
    /// When there is none.
    pub fn room(&self, bounds: InboxBounds, item: &T) -> Result<(), Full> {
        let fits = self.items.len() < bounds.messages && self.bytes + item.weight() <= bounds.bytes;
        if fits { Ok(()) } else { Err(Full { messages: self.items.len(), bytes: self.bytes }) }
    }

    /// Adds an item behind all others.
    pub fn put(&mut self, item: T) {
        self.bytes += item.weight();
        self.arrivals += 1;
        self.items.push_back(item);
    }

    /// Removes items; those that are not there are none of its.
    pub fn take(&mut self, ids: &BTreeSet<MessageId>) {
        let bytes = &mut self.bytes;
        self.items.retain(|item| {
            let stays = !ids.contains(&item.id());
            if !stays {
                *bytes -= item.weight();
            }
            stays
        });
    }

    /// The items that can be delivered, the oldest first: those that are durable and not decided to
    /// be taken. This inbox has everything decided, the other one what is on the disk.
    pub fn deliverable<'i>(&'i self, durable: &Self) -> impl Iterator<Item = &'i T> + Clone {
        let unwritten = self.arrivals - durable.arrivals;
        self.items.iter().take(self.items.len().saturating_sub(unwritten))
    }

    /// All items, the oldest first.
    pub fn items(&self) -> impl Iterator<Item = &T> + Clone {
        self.items.iter()
    }

    /// The weight of all items, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// The first items of a delivery: at most `limit`, and so many that they take at most
/// `answer_bytes`, but one at least if there is any.
pub fn pick<'i, T: Item + 'i>(
    items: impl Iterator<Item = &'i T> + Clone,
    limit: usize,
    answer_bytes: usize,
) -> Vec<T> {
    let items = items.take(limit);
    let all = items.clone().map(T::most_answer_bytes).sum::<usize>() <= answer_bytes;
    let (mut left, mut picked) = (answer_bytes, Vec::new());
    for item in items {
        let takes = if all { 0 } else { item.answer_bytes() };
        if takes > left && !picked.is_empty() {
            break;
        }
        left = left.saturating_sub(takes);
        picked.push(item.clone());
    }
    picked
}

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
        snapshot(self.items().map(|message| Record::Put(message.clone())))
    }

    fn unfold(bytes: &[u8]) -> Result<Self, String> {
        let mut inbox = Self::default();
        for record in snapshot_records(bytes)? {
            // Each of them follows.
            drop(inbox.apply(record));
        }
        Ok(inbox)
    }
}

/// A snapshot of a member's stream, here and of its tasks: records, each after its length as four
/// bytes, the lowest first; `None` when one cannot be written.
pub(crate) fn snapshot<R: LogRecord>(records: impl Iterator<Item = R>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        let record = record.encode().ok()?;
        bytes.extend_from_slice(&u32::try_from(record.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    Some(bytes)
}

/// A snapshot's records.
///
/// # Errors
/// In words, when it makes no sense.
pub(crate) fn snapshot_records<R: LogRecord>(mut bytes: &[u8]) -> Result<Vec<R>, String> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or("a record is cut short")?;
        records.push(R::decode(record)?);
        bytes = rest;
    }
    if bytes.is_empty() { Ok(records) } else { Err("a record is cut short".to_owned()) }
}

#[cfg(test)]
mod tests;
