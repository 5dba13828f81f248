//! Ports to sessions: which users are known, and the families of tools that a session has loaded into its listing.

use std::collections::BTreeSet;

use async_trait::async_trait;
use hivekeep_kernel::{Resources, SessionId, ToolError, User};

/// Resources of a workspace made from the default image with default sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultSize(pub Resources);

/// Bound of one part of a workspace's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeBound {
    /// Least value.
    pub least: u64,
    /// Value of a workspace whose creation names none.
    pub default: u64,
    /// Greatest value.
    pub most: u64,
}

/// Workspaces that this daemon makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceBounds {
    /// Virtual CPUs.
    pub vcpus: SizeBound,
    /// Memory in MiB.
    pub memory_mb: SizeBound,
    /// Disk in GiB.
    pub disk_gb: SizeBound,
    /// Kinds of isolation that this host offers, as `workspace_create` names them.
    pub isolations: Vec<&'static str>,
}

/// Users of the HTTP doors, who are gone once their credential is revoked.
pub trait KnownUsers: Send + Sync {
    /// True unless the user's credential was revoked.
    fn knows(&self, user: User) -> bool;
}

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
