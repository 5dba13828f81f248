//! Toolset port: families of tools that sessions have loaded into their listings.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::{SessionId, ToolError};

/// Loaded toolsets of all sessions. They outlive the daemon, as the session does.
#[async_trait]
pub trait SessionToolsets: Send + Sync {
    /// Families that a session has loaded; none for one that nobody knows.
    fn loaded(&self, session: SessionId) -> BTreeSet<String>;

    /// Loads families, by the names that they are declared by. Clients are told that their list has
    /// changed. Answers once it is durable, with those that were not loaded before.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`, `journal_failed`.
    async fn load(
        &self,
        session: SessionId,
        toolsets: BTreeSet<String>,
    ) -> Result<BTreeSet<String>, ToolError>;
}
