//! Files of one workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// List a directory of a running workspace, sorted by name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Absolute path of a directory in the workspace.
    pub path: String,
    /// Continue after this name: the `next` of the page before.
    pub after: Option<String>,
    /// Most entries, 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    #[serde(default = "default_entries")]
    pub limit: u32,
}

fn default_entries() -> u32 {
    1000
}

/// A page of a directory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileListed {
    /// Sorted by name.
    pub entries: Vec<FileRow>,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One entry of a directory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileRow {
    /// Name.
    pub name: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// As in `rwxr-xr-x`.
    pub permissions: String,
    /// Unix seconds.
    pub modified: i64,
}

/// Move a file of any size between the host's transfer directory and a running
/// workspace. The target appears whole or not at all.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileTransfer {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// `upload` goes into the workspace, `download` comes out of it.
    pub direction: Direction,
    /// Path in the host's transfer directory, relative to it or absolute.
    pub host_path: String,
    /// Absolute path in the workspace.
    pub guest_path: String,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Host to workspace.
    Upload,
    /// Workspace to host.
    Download,
}

/// A moved file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileTransferred {
    /// Which way.
    pub direction: Direction,
    /// On the host.
    pub host_path: String,
    /// In the workspace.
    pub guest_path: String,
    /// Bytes moved.
    pub bytes: u64,
}
