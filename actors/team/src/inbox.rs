//! A member's inbox: a bounded queue of messages, the oldest first. Pure.
//!
//! ```text
//! room ─► put ─► waits ─► delivered, as a lease ─► taken
//!                  ▲               │
//!                  └── not taken ──┘ redelivered
//! ```
//! The records add up to what was put and not taken ([`records`]). A delivery is held beside it, by
//! the actor of the team: it ends with its incarnation, and what it held is delivered again.

mod records;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::MessageId;

pub use records::{Record, stream};

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
    /// Messages.
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

#[cfg(test)]
mod tests;
