//! Sleep of workspaces.

use hivekeep_kernel::WorkspaceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Put a virtual machine to sleep: its memory goes to the host's disk and no process is left.
/// Whatever is wanted of it next wakes it, and everything inside goes on where it was.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspacePark {
    /// Id or name of the workspace.
    pub workspace_id: String,
}

/// A parked workspace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Parked {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// `parked`.
    pub state: Phase,
    /// Bytes of its memory on the host's disk.
    pub memory_bytes: u64,
    /// How long it took.
    pub took_ms: u64,
}
