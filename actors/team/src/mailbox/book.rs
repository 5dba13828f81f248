//! What is in an inbox, and what of it is handed out. Pure.
//!
//! ```text
//!  admit ─► (being written) ─► arrive ─► waiting ── lend ──► on loan ── settle(true) ──► gone
//!                                          ▲                   │
//!                                          └── settle(false) ──┘   confirm ──► gone
//! ```
//! One loan at a time: what comes back from it is handed out again before anything behind it, so
//! that a receiver sees a sender's messages in order.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::MessageId;

/// What a message weighs beside its content.
pub(super) const ENVELOPE_BYTES: usize = 512;

/// One message to one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id; the same for every member that a broadcast goes to.
    pub id: MessageId,
    /// The member that sent it.
    pub from: String,
    /// To whom it was sent: a member, or `*`.
    pub to: String,
    /// The sender's word for what it is.
    pub kind: String,
    /// What it says.
    pub content: Arc<str>,
    /// When it was sent.
    pub at: DateTime<Utc>,
}

/// What a book can hold.
pub trait Letter: Clone {
    /// Unique in a book.
    fn id(&self) -> MessageId;

    /// What it counts for in a book, in bytes.
    fn weight(&self) -> usize;

    /// What it takes in an answer, in bytes of JSON.
    fn answer_bytes(&self) -> usize;

    /// At most that; known at once.
    fn most_answer_bytes(&self) -> usize;
}

impl Letter for Message {
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

/// How much an inbox holds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Messages.
    pub messages: usize,
    /// Bytes, as [`Letter::weight`] counts them.
    pub bytes: usize,
}

/// The inbox has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{messages} messages of {bytes} bytes wait there")]
pub struct Full {
    /// Messages in it.
    pub messages: usize,
    /// Bytes in it.
    pub bytes: usize,
}

#[derive(Debug, Clone)]
struct Held<T> {
    message: T,
    /// It may have been handed out before.
    again: bool,
}

/// A message as it is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent<T = Message> {
    /// The message.
    pub message: T,
    /// It may have been handed out before.
    pub again: bool,
}

/// An inbox.
#[derive(Debug, Clone)]
pub struct Book<T = Message> {
    bounds: Bounds,
    held: VecDeque<Held<T>>,
    /// Of what is held and of what is being written.
    messages: usize,
    bytes: usize,
    loan: Option<(u64, BTreeSet<MessageId>)>,
    loans: u64,
}

impl<T: Letter> Book<T> {
    /// An empty one. Its loans are counted from a number on: one that an earlier incarnation made
    /// must not be taken for one of these.
    pub fn new(bounds: Bounds, first_loan: u64) -> Self {
        Self { bounds, held: VecDeque::new(), messages: 0, bytes: 0, loan: None, loans: first_loan }
    }

    /// Takes in what the journal says. Whether it was handed out before is not known.
    pub fn restore(&mut self, messages: impl IntoIterator<Item = T>) {
        for message in messages {
            self.messages += 1;
            self.bytes += message.weight();
            self.held.push_back(Held { message, again: true });
        }
    }

    /// Keeps room for a message that is going to be written.
    ///
    /// # Errors
    /// When there is none.
    pub fn admit(&mut self, message: &T) -> Result<(), Full> {
        let fits = self.messages < self.bounds.messages
            && self.bytes + message.weight() <= self.bounds.bytes;
        if !fits {
            return Err(Full { messages: self.messages, bytes: self.bytes });
        }
        self.messages += 1;
        self.bytes += message.weight();
        Ok(())
    }

    /// An admitted message is durable.
    pub fn arrive(&mut self, message: T) {
        self.held.push_back(Held { message, again: false });
    }

    /// Whether nothing can be handed out until a loan is settled.
    pub fn on_loan(&self) -> bool {
        self.loan.is_some()
    }

    /// Hands out the oldest messages, up to `limit` and `answer_bytes`, but at least one. `None`
    /// when nothing is there. Not to be called while there is a loan.
    pub fn lend(&mut self, limit: usize, answer_bytes: usize) -> Option<(u64, Vec<Lent<T>>)> {
        let mut left = answer_bytes;
        let mut lent = Vec::new();
        let most = self.held.iter().take(limit).map(|held| held.message.most_answer_bytes());
        let all = most.sum::<usize>() <= answer_bytes;
        for held in self.held.iter().take(limit) {
            let takes = if all { 0 } else { held.message.answer_bytes() };
            if takes > left && !lent.is_empty() {
                break;
            }
            left = left.saturating_sub(takes);
            lent.push(Lent { message: held.message.clone(), again: held.again });
        }
        if lent.is_empty() {
            return None;
        }
        self.loans += 1;
        self.loan = Some((self.loans, lent.iter().map(|lent| lent.message.id()).collect()));
        Some((self.loans, lent))
    }

    /// A loan is over: what was taken is gone and named, what was not waits again. A loan that is
    /// not the present one changes nothing.
    pub fn settle(&mut self, loan: u64, taken: bool) -> Vec<MessageId> {
        let Some((_, ids)) = self.loan.take_if(|(number, _)| *number == loan) else {
            return Vec::new();
        };
        if taken {
            return self.remove(&ids);
        }
        let lent = self.held.iter_mut().filter(|held| ids.contains(&held.message.id()));
        lent.for_each(|held| held.again = true);
        Vec::new()
    }

    /// The receiver names what it has. Gives those that were there.
    pub fn confirm(&mut self, ids: &BTreeSet<MessageId>) -> Vec<MessageId> {
        self.remove(ids)
    }

    fn remove(&mut self, ids: &BTreeSet<MessageId>) -> Vec<MessageId> {
        let mut gone = Vec::new();
        self.held.retain(|held| {
            let goes = ids.contains(&held.message.id());
            if goes {
                gone.push(held.message.id());
                self.messages -= 1;
                self.bytes -= held.message.weight();
            }
            !goes
        });
        gone
    }

    /// What is in it, the oldest first.
    pub fn held(&self) -> impl Iterator<Item = &T> {
        self.held.iter().map(|held| &held.message)
    }

    /// How many messages can be received, those on loan included.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
