//! Port to the operator's mail server.

use async_trait::async_trait;
use hivekeep_kernel::{ToolError, User};

/// Mail to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Addresses of the receivers.
    pub to: Vec<String>,
    /// Address that answers go to; the sender's is the operator's.
    pub reply_to: Option<String>,
    /// Subject in a line.
    pub subject: String,
    /// Text of the mail.
    pub body: String,
    /// Key of the mail: the same for a second attempt.
    pub key: String,
}

/// Server for mails, with a share of it for each user. Offered where the operator configured one.
#[async_trait]
pub trait Mails: Send + Sync {
    /// Sends a mail of a user; the id that the receivers know it by.
    ///
    /// # Errors
    /// `handler_denied` for a receiver that the operator does not allow, `rate_limited`, `mail_invalid`; `mail_failed`,
    /// retryable where the server may take it later.
    async fn send(&self, user: User, mail: Mail) -> Result<String, ToolError>;
}
