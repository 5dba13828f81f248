//! Files of one workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest text that `file_read` returns and `file_write` takes in one call.
pub(crate) const MAX_TEXT_BYTES: u64 = 16 * 1024 * 1024;

/// Write a text file in a running workspace or a place: the whole file appears at once or
/// not at all. Missing parent directories are made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWrite {
    /// Id or name of the workspace. Default: the place.
    pub workspace_id: Option<String>,
    /// Name of a place, such as a folder of the host that the operator opened, without `workspace_id`. Default: the session's.
    pub place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub path: String,
    /// The whole content, at most 16 MiB.
    pub content: String,
    /// Permission bits in octal, such as "0755". Default: keep those of an existing file, else 0644.
    pub mode: Option<String>,
}

/// A written file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileWritten {
    /// Place that it is in; absent in a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Where.
    pub path: String,
    /// Bytes written.
    pub bytes: u64,
    /// Whether there was a file before.
    pub replaced: bool,
    /// Its permission bits in octal.
    pub mode: String,
}

/// Read a text file, or a part of it, from a running workspace or a place. A file that is
/// not UTF-8 is refused: use file_transfer for those of a workspace.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// Id or name of the workspace. Default: the place.
    pub workspace_id: Option<String>,
    /// Name of a place, such as a folder of the host that the operator opened, without `workspace_id`. Default: the session's.
    pub place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub path: String,
    /// First byte to read.
    #[serde(default)]
    pub offset: u64,
    /// Most bytes to read; default and limit 16 MiB.
    #[schemars(range(max = MAX_TEXT_BYTES))]
    pub limit: Option<u64>,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {
    /// Place that it is in; absent in a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Language by the file's name, as `lang_detect` tells it; of files of a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Where.
    pub path: String,
    /// The text. A character cut by the range's edges is left out.
    pub content: String,
    /// Byte position of the first byte of `content`.
    pub offset: u64,
    /// Where to continue reading; equal to `size_bytes` at the end.
    pub next_offset: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

/// Replace an exact text in a UTF-8 file of a running workspace or a place, atomically.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileEdit {
    /// Id or name of the workspace. Default: the place.
    pub workspace_id: Option<String>,
    /// Name of a place, such as a folder of the host that the operator opened, without `workspace_id`. Default: the session's.
    pub place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub path: String,
    /// Exact text to find; not empty.
    #[schemars(length(min = 1))]
    pub old_string: String,
    /// What to put in its place.
    pub new_string: String,
    /// Replace every occurrence instead of the first.
    #[serde(default)]
    pub replace_all: bool,
}

/// An edited file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileEdited {
    /// Place that it is in; absent in a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Where.
    pub path: String,
    /// Always true: a text that does not occur is an error.
    pub success: bool,
    /// Occurrences replaced.
    pub replacements: u64,
    /// Occurrences there were.
    pub occurrences: u64,
}

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
