//! Taking over workspaces that nobody holds.

use hivekeep_kernel::WorkspaceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Take over a workspace whose session is gone, or all of them. A workspace of
/// another session that is in use is never taken; with `force` one whose session
/// has been idle for a minute is.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceAdopt {
    /// Id or name of the workspace; left out, every orphaned one of the same user is taken.
    pub workspace_id: Option<String>,
    /// Take it from a session that still exists, if that has been idle for 60 s.
    #[serde(default)]
    pub force: bool,
}

/// What was taken over.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Adoption {
    /// The workspace, when one was named.
    pub workspace_id: Option<WorkspaceId>,
    /// Its name.
    pub name: Option<String>,
    /// Its state.
    pub state: Option<Phase>,
    /// Its address.
    pub ip: Option<String>,
    /// Whether the owner changed; false when it was the caller's already.
    pub adopted_one: Option<bool>,
    /// Whether it was taken from a session that still exists.
    pub forced: Option<bool>,
    /// How many were taken.
    pub adopted_count: usize,
    /// Those taken.
    pub adopted: Vec<Adopted>,
    /// How many could not be taken.
    pub error_count: usize,
    /// Why not.
    pub errors: Vec<NotAdopted>,
}

/// One workspace taken over.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Adopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: Phase,
}

/// One workspace not taken over.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotAdopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Code and message.
    pub error: String,
}
