//! Port to questions that stand until people answer them, while whoever asked waits without a call.

use async_trait::async_trait;
use hivekeep_kernel::{ApprovalId, SessionId, ToolError, User, UserQuestion, UserReply};
use tokio::sync::watch;

/// Question that stands, also when the daemon starts again, until it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingQuestion {
    /// Session that it is asked for.
    pub session: SessionId,
    /// User whose session that is.
    pub user: User,
    /// Name of what asks, where people see a call's tool.
    pub tool: &'static str,
    /// Name among the questions of the tool and the session.
    pub name: String,
    /// Question and form of the reply.
    pub question: UserQuestion,
}

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionState {
    /// Nobody has answered.
    Waits,
    /// Somebody replied; an empty reply is a plain yes.
    Replied {
        /// Whoever replied.
        by: String,
        /// Reply that fits the form.
        reply: UserReply,
    },
    /// Somebody refused.
    Refused {
        /// Whoever refused.
        by: String,
        /// Reason that was given.
        why: Option<String>,
    },
    /// Settled, or not known any more.
    Gone,
}

/// Questions that stand. An answer stays until the question is settled, so whoever asked can write it down first.
#[async_trait]
pub trait StandingQuestions: Send + Sync {
    /// Puts a question, or gives the one that stands already in the same words.
    ///
    /// # Errors
    /// `approvals_full`, `journal_failed`.
    async fn put(&self, question: StandingQuestion) -> Result<ApprovalId, ToolError>;

    /// Where a question stands.
    fn state(&self, id: ApprovalId) -> QuestionState;

    /// Questions of a tool that are not settled.
    fn standing(&self, tool: &str) -> Vec<ApprovalId>;

    /// Takes a question back, or lets its answer go. One that is gone is no error.
    ///
    /// # Errors
    /// `journal_failed`.
    async fn settle(&self, id: ApprovalId) -> Result<(), ToolError>;

    /// Counts changes of any question.
    fn changes(&self) -> watch::Receiver<u64>;
}
