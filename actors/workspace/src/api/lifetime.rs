//! Ends of workspaces.

use chrono::{DateTime, Utc};
use hivekeep_kernel::WorkspaceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lifetime::{AtEnd, MAX_LIFETIME_SECS};

/// Set when a workspace ends by itself, counted from now, and what happens then;
/// or take its end away. Without lifetime_secs only at_end changes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceLifetime {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Seconds from now; null: it has no end any more.
    #[serde(default, with = "serde_with::rust::double_option")]
    #[schemars(with = "Option<u64>", range(max = MAX_LIFETIME_SECS))]
    pub lifetime_secs: Option<Option<u64>>,
    /// What happens then. Default: as before, or `stop`.
    pub at_end: Option<AtEnd>,
    /// Park it by itself after so many idle seconds; 0: never; null: as configured. Default: as before.
    #[serde(default, with = "serde_with::rust::double_option")]
    #[schemars(with = "Option<u64>", range(max = MAX_LIFETIME_SECS))]
    pub idle_park_secs: Option<Option<u64>>,
    /// Only ever extend: an end that is later, or none, stays.
    #[serde(default)]
    pub at_least: bool,
}

/// What holds now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LifetimeSet {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// When it ends by itself; null: it does not.
    pub ends_at: Option<DateTime<Utc>>,
    /// What happens then.
    pub at_end: Option<AtEnd>,
    /// Idle seconds after which it is parked by itself; null: never.
    pub idle_park_secs: Option<u64>,
}
