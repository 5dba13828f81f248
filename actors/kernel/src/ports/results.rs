//! Claim check: a result that is too large for its answer is stored, and the answer says where.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::{CallId, SessionId, ToolError, User};

/// Result that is larger than its tool may answer.
#[derive(Debug, Clone)]
pub struct LargeResult {
    /// Owner: nobody else but the operator can read it.
    pub user: User,
    /// Session of the call.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// Canonical name of the tool.
    pub tool: &'static str,
    /// The whole result.
    pub value: Value,
}

/// Where a result is kept, as it is told to its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptResult {
    /// URI, such as `hivekeep://artifacts/art_...`.
    pub uri: String,
    /// Size in bytes.
    pub bytes: u64,
    /// MIME type: the form in which it is kept.
    pub mime_type: &'static str,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// Time at which it is removed.
    pub expires_at: DateTime<Utc>,
}

/// Store of results that are too large for their answers.
#[async_trait]
pub trait ResultKeeper: Send + Sync {
    /// Name of the tool that reads what is kept, in ranges.
    fn reader(&self) -> &'static str;

    /// Keeps a result. It is on the disk when this returns, and can be read until it expires. Work
    /// that has begun goes on when the future is dropped.
    ///
    /// # Errors
    /// When there is no room for it, or it cannot be written; then nothing is kept.
    async fn keep(&self, result: LargeResult) -> Result<KeptResult, ToolError>;
}
