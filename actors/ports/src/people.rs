//! Ports to people: questions that a person answers, and modes that a person lets a session into.

use std::time::Duration;

use async_trait::async_trait;
use hivekeep_kernel::{ApprovalId, CallCx, SessionId, ToolError, UserQuestion, UserReply};

/// Outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserOutcome {
    /// Somebody replied.
    Replied(UserReply),
    /// Nobody replied in time. The question goes on waiting: asked again, it is the same one.
    Unanswered(ApprovalId),
}

/// People who answer for the daemon's sessions, by whatever way they are reached.
#[async_trait]
pub trait People: Send + Sync {
    /// Asks a question for a call. It is durable, and stays when the call ends without a reply.
    ///
    /// # Errors
    /// `approvals_full`, `cancelled`, `journal_failed`.
    async fn ask(
        &self,
        cx: &CallCx,
        question: UserQuestion,
        limit: Duration,
    ) -> Result<UserOutcome, ToolError>;

    /// The mode of a session's conversation.
    fn conversation(&self, session: SessionId) -> Option<String>;

    /// All modes, in the order of their names.
    fn conversations(&self) -> Vec<ConversationMode>;

    /// Puts a session into a mode. One that lets it call more than before needs a person's approval.
    ///
    /// # Errors
    /// `unknown_mode`; those of approvals.
    async fn converse(&self, cx: &CallCx, mode: &str, reason: &str) -> Result<(), ToolError>;
}

/// Mode of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationMode {
    /// Name of the mode.
    pub name: String,
    /// Names of the only tools that a session may call in it.
    pub tools: Vec<String>,
    /// Instructions for a model.
    pub prompt: String,
}
