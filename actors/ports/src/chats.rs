//! Chat port: conversations with an agent, each an execution that waits for its next message, and the pages that
//! people have open beside them.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, ToolError, User};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Chats of the caller's user. The `Option` of an answer is `None` where that user has no chat of the id: none
/// was ever opened, it was removed, or it is another user's.
#[async_trait]
pub trait Chats: Send + Sync {
    /// Opens a chat, which waits for its first message. It is durable when this returns.
    ///
    /// # Errors
    /// Those of whoever runs it, as too many executions, or a model that is not configured.
    async fn open(&self, cx: &CallCx, name: &str) -> Result<ChatSession, ToolError>;

    /// Lists the chats, those that are over included, the oldest first.
    ///
    /// # Errors
    /// `session_ended`.
    async fn list(&self, cx: &CallCx) -> Result<Vec<ChatSession>, ToolError>;

    /// Sends a message, which is read before the next turn. The time is that of its record, which is durable
    /// when this returns.
    ///
    /// # Errors
    /// When the chat is over, or as many messages wait as may.
    async fn send(
        &self,
        cx: &CallCx,
        chat: &str,
        message: &str,
    ) -> Result<Option<DateTime<Utc>>, ToolError>;

    /// Reads the newest messages, at most `limit`, the oldest of them first.
    ///
    /// # Errors
    /// `journal_failed`.
    async fn messages(
        &self,
        cx: &CallCx,
        chat: &str,
        limit: usize,
    ) -> Result<Option<Vec<ChatMessage>>, ToolError>;

    /// Events of a chat of the user's, from behind a sequence on, and those that are to come; `None` as for all
    /// others. Nothing is read before it is asked for.
    fn events(&self, user: User, chat: &str, after: u64) -> Option<Box<dyn ChatEvents>>;

    /// Reads what the chat does now: the calls of the turn that runs, in their order; none between turns.
    ///
    /// # Errors
    /// `journal_failed`.
    async fn plan(&self, cx: &CallCx, chat: &str) -> Result<Option<ChatPlan>, ToolError>;
}

/// Events of runs of DAGs and of workflows.
pub trait RunFeeds: Send + Sync {
    /// Events of a run of the user's, from behind a sequence on, and those that are to come; `None` as for all others.
    /// Nothing is read before it is asked for.
    fn events(&self, user: User, run: &str, after: u64) -> Option<Box<dyn ChatEvents>>;
}

/// Events of a chat or of a run, in order and without a gap.
#[async_trait]
pub trait ChatEvents: Send {
    /// The next events, some at a time, as soon as there is one; none when nothing follows any more. Dropped while it
    /// waits, it has lost nothing.
    ///
    /// # Errors
    /// `journal_failed`; when the chat was removed.
    async fn next(&mut self) -> Result<Vec<ChatEvent>, ToolError>;
}

/// Event of a chat: a record of its execution, as `aegis.task.logs` has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatEvent {
    /// Place of the event in the chat, from 1 and without a gap.
    pub sequence: u64,
    /// Name of what happened.
    pub event_type: &'static str,
    /// Facts about it.
    pub payload: Value,
    /// Time of its record.
    pub recorded_at: DateTime<Utc>,
}

/// A chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatSession {
    /// Id of the chat, which is that of its execution.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// `waiting`, `running`, `completed`, `failed` or `cancelled`.
    pub status: ChatStatus,
    /// Time at which it was opened.
    pub created_at: DateTime<Utc>,
}

/// State of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum ChatStatus {
    /// A message is waited for, or a decision of a person.
    Waiting,
    /// A turn runs, or is about to.
    Running,
    /// End by itself.
    Completed,
    /// End by an error.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl ChatStatus {
    /// True if no message can be sent any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChatMessage {
    /// `user`, `assistant` or `error`.
    pub role: ChatRole,
    /// Text.
    pub content: String,
    /// Time of its record.
    pub timestamp: DateTime<Utc>,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    /// The person or program that writes to the agent.
    User,
    /// The agent.
    Assistant,
    /// Nobody: why a message got no answer.
    Error,
}

/// Current work of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChatPlan {
    /// `waiting`, `running`, `completed`, `failed` or `cancelled`.
    pub status: ChatStatus,
    /// Calls of the turn that runs, in their order; none between turns.
    pub steps: Vec<ChatStep>,
}

/// Call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChatStep {
    /// Name of the tool.
    pub name: String,
    /// `pending`, `running`, `completed` or `failed`.
    pub status: ChatStepStatus,
}

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum ChatStepStatus {
    /// Not begun yet.
    Pending,
    /// The call runs.
    Running,
    /// The call ended well.
    Completed,
    /// The call was refused, failed or was interrupted.
    Failed,
}

/// Pages that people have open, as clients of the hub.
pub trait PersonPages: Send + Sync {
    /// True while a client of the user's is connected, whatever it follows.
    fn connected(&self, user: User) -> bool;

    /// Tells the user's open pages to go to a path. Returns how many were told; one that does not read is not.
    fn navigate(&self, user: User, path: &str) -> usize;
}
