//! Port URL port: URLs for TCP ports of workspaces, which a door serves.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{ToolError, WorkspaceId};

/// Request for a port's URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortUrlWish {
    /// Makes the port public, or private again; `None` leaves it.
    pub public: Option<bool>,
    /// Time that a signed link opens a private port.
    pub expires_secs: u64,
}

/// URL of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortUrl {
    /// URL, which stays the same.
    pub url: String,
    /// True if it needs no credential.
    pub public: bool,
    /// Signed link to a private port, and when it expires.
    pub link: Option<(String, DateTime<Utc>)>,
}

/// URLs of ports. Offered only while they are served. Whose the workspace is has been judged by the caller.
#[async_trait]
pub trait PortUrls: Send + Sync {
    /// Gives a port's URL, after what is asked about it is durable.
    ///
    /// # Errors
    /// `too_many_public_ports`; `journal_failed`.
    async fn url(
        &self,
        workspace: WorkspaceId,
        name: &str,
        port: u16,
        wish: PortUrlWish,
    ) -> Result<PortUrl, ToolError>;

    /// Public ports of a workspace with their URLs, in order.
    fn public(&self, workspace: WorkspaceId, name: &str) -> Vec<(u16, String)>;
}
