//! Text files of a workspace or a place: one declaration for both.

use hivekeep_file_engine::MAX_EDIT_BYTES;
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Write a text file in a running workspace or a place: the whole file appears at once or
/// not at all. Missing parent directories are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileWrite {
    /// Id or name of the workspace. Default: the place.
    pub(crate) workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    pub(crate) place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub(crate) path: String,
    /// The whole content, at most 16 MiB.
    #[schemars(length(max = MAX_EDIT_BYTES))]
    pub(crate) content: String,
    /// Octal permissions, such as "0755". Default: keep those of an existing file, else 0644.
    pub(crate) mode: Option<String>,
}

/// A written file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileWritten {
    /// Place, or name of the workspace.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
    /// Its permission bits in octal.
    pub(crate) mode: String,
}

/// Read a text file, or a part of it, from a running workspace or a place. A file that is
/// not UTF-8 is refused: use file_transfer for those of a workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRead {
    /// Id or name of the workspace. Default: the place.
    pub(crate) workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    pub(crate) place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub(crate) path: String,
    /// First byte to read.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Most bytes to read, 8 or more; default and limit 16 MiB.
    #[schemars(range(max = MAX_EDIT_BYTES))]
    pub(crate) limit: Option<u64>,
}

/// Text of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileContent {
    /// Place, or name of the workspace.
    pub(crate) place: String,
    /// Language by the file's name, as `lang_detect` tells it.
    pub(crate) language: &'static str,
    /// Path.
    pub(crate) path: String,
    /// The text. A character cut by the range's edges is left out.
    pub(crate) content: String,
    /// Byte position of the first byte of `content`.
    pub(crate) offset: u64,
    /// Where to continue reading; equal to `size_bytes` at the end.
    pub(crate) next_offset: u64,
    /// Size of the file.
    pub(crate) size_bytes: u64,
}

/// Replace an exact text in a UTF-8 file of a running workspace or a place, atomically.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEdit {
    /// Id or name of the workspace. Default: the place.
    pub(crate) workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    pub(crate) place: Option<String>,
    /// Absolute path in the workspace, or the place.
    pub(crate) path: String,
    /// Exact text to find; not empty.
    #[schemars(length(min = 1))]
    pub(crate) old_string: String,
    /// What to put in its place.
    pub(crate) new_string: String,
    /// Replace every occurrence instead of the first.
    #[serde(default)]
    pub(crate) replace_all: bool,
}

/// An edited file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileEdited {
    /// Place, or name of the workspace.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Always true: a text that does not occur is an error.
    pub(crate) success: bool,
    /// Occurrences replaced.
    pub(crate) replacements: u64,
    /// Occurrences there were.
    pub(crate) occurrences: u64,
}

tools! { pub(crate) FAMILY: "file operations" for service Files, singleton files;
    file_write: FileWrite => FileWritten = Files::file_write {
        title: "Write a file", effect: Idempotent, timeout_secs: 120, rate: RateClass::File,
    };
    file_read: FileRead => FileContent = Files::file_read {
        title: "Read a file", effect: Read, timeout_secs: 120, result_budget_bytes: 40 * 1024 * 1024,
        rate: RateClass::File,
    };
    file_edit: FileEdit => FileEdited = Files::file_edit {
        title: "Edit a file", rate: RateClass::File,
    };
}
