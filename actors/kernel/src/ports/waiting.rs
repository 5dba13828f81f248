//! Waiting messages: a summary of the inboxes of a session, for doors that tell it beside each
//! answer.

use chrono::{DateTime, Utc};

use crate::SessionId;

/// Messages and results that wait for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSummary {
    /// Number of messages.
    pub messages: usize,
    /// Number of results of tasks.
    pub results: usize,
    /// The oldest of all.
    pub oldest: OldestWaiting,
}

/// The oldest item of a [`WaitingSummary`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestWaiting {
    /// Name of the team.
    pub team: String,
    /// Member in whose inbox the item waits.
    pub member: String,
    /// Member that the item is from: the sender of a message, the one whose task ended.
    pub from: String,
    /// Time from which on the item waits.
    pub since: DateTime<Utc>,
}

/// Inboxes of all sessions, as summaries in memory.
pub trait WaitingMessages: Send + Sync {
    /// Summary of what waits for a session and is not on its way to it; `None` when nothing does. Answers
    /// from memory, without waiting: every call of every session asks.
    fn of(&self, session: SessionId) -> Option<WaitingSummary>;
}
