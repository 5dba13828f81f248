//! Files of a session's place.

use hivekeep_file_engine::MAX_EDIT_BYTES;
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Size of a text that one call reads at most.
pub(crate) const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// Read a text file of a place, or a range of it. A file that is not UTF-8 is refused with its size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsRead {
    /// Path from the place's root.
    pub(crate) path: String,
    /// First byte to read.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Most bytes to read, at most 4 MiB.
    #[schemars(range(min = 8, max = MAX_READ_BYTES))]
    #[serde(default = "default_read_bytes")]
    pub(crate) limit: u64,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

fn default_read_bytes() -> u64 {
    256 * 1024
}

/// Text of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsContent {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// The text. A character that an edge of the range cuts is left out.
    pub(crate) content: String,
    /// Position of the first byte of `content`.
    pub(crate) offset: u64,
    /// Where to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
    /// Size of the file.
    pub(crate) size_bytes: u64,
}

/// Write a text file in a place: the whole file appears at once or not at all. An existing one keeps its
/// mode and owner; missing folders are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsWrite {
    /// Path from the place's root.
    pub(crate) path: String,
    /// The whole content, at most 16 MiB.
    #[schemars(length(max = MAX_EDIT_BYTES))]
    pub(crate) content: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsWritten {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Size of the file.
    pub(crate) bytes_written: u64,
    /// Whether there was a file before.
    pub(crate) replaced: bool,
}

/// List a folder of a place, sorted by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsList {
    /// Path of a folder from the place's root; `/` is the root.
    pub(crate) path: String,
    /// Continue after this name: the `next` of the page before.
    pub(crate) after: Option<String>,
    /// Most entries, 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    #[serde(default = "default_entries")]
    pub(crate) limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

pub(super) fn default_entries() -> usize {
    200
}

/// A page of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsListed {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// By name; bytes of names that are not UTF-8 are replaced.
    pub(crate) entries: Vec<FsEntry>,
    /// Number of entries on all pages.
    pub(crate) total: u64,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsEntry {
    /// Name.
    pub(crate) name: String,
    /// `file`, `directory`, `symlink` or `other`.
    pub(crate) file_type: &'static str,
    /// Size.
    pub(crate) size_bytes: u64,
}

/// Make a folder in a place, with the folders that it is in. One that exists is left as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsCreateDir {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// Delete a file, a link or a folder of a place for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsDelete {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Delete a folder with everything in it; without it only an empty one.
    #[serde(default)]
    pub(crate) recursive: bool,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// A path that was made or deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsPath {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
}

/// Replace a text that occurs exactly once in a UTF-8 file of a place. The file changes whole or not at
/// all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsEdit {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Exact text to replace; it must occur once.
    #[schemars(length(min = 1))]
    pub(crate) target_content: String,
    /// Text to put in its place.
    pub(crate) replacement_content: String,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// Replace several texts in a UTF-8 file of a place, each exactly once in what the edits before it left.
/// All are made, or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsMultiEdit {
    /// Path from the place's root.
    pub(crate) path: String,
    /// Edits, in their order.
    #[schemars(length(min = 1, max = 1000))]
    pub(crate) edits: Vec<FsOneEdit>,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// One edit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsOneEdit {
    /// Exact text to replace; it must occur once.
    #[schemars(length(min = 1))]
    pub(crate) target_content: String,
    /// Text to put in its place.
    pub(crate) replacement_content: String,
}

/// A file that was edited.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsEdited {
    /// Place.
    pub(crate) place: String,
    /// Path.
    pub(crate) path: String,
    /// Number of texts that were replaced.
    pub(crate) applied: usize,
    /// Size of the file now.
    pub(crate) size_bytes: u64,
}

/// Search the files below a folder of a place for lines that match a regular expression.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsGrep {
    /// Regular expression, in the syntax of Rust's regex crate.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) pattern: String,
    /// Path of a folder or file from the place's root.
    pub(crate) path: String,
    /// Only files whose path from there fits this glob pattern, such as `*.rs`.
    #[schemars(length(max = 1024))]
    pub(crate) glob: Option<String>,
    /// Take upper and lower case as the same.
    #[serde(default)]
    pub(crate) ignore_case: bool,
    /// Leave out `.git` and what the `.gitignore` files below `path` exclude.
    #[serde(default)]
    pub(crate) gitignore: bool,
    /// Most lines, 1 to 5000. All that match are counted.
    #[schemars(range(min = 1, max = 5000))]
    #[serde(default = "default_lines")]
    pub(crate) limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

fn default_lines() -> usize {
    100
}

/// Lines that match.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsGrepped {
    /// Place.
    pub(crate) place: String,
    /// `path:line:content`, in order of the paths; a line over 500 bytes is cut.
    pub(crate) matches: Vec<String>,
    /// Number of lines that match.
    pub(crate) count: u64,
    /// Number of lines that match and are not in `matches`.
    pub(crate) left: u64,
    /// Number of files with a line that matches.
    pub(crate) files: u64,
    /// Number of binary files, which were searched up to their first NUL only.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) binary_files: u64,
    #[serde(flatten)]
    pub(crate) unread: FsUnread,
}

/// Find files below a folder of a place by a glob pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsGlob {
    /// Pattern for the path from `path` on, such as `src/**/*.rs`; without `/` it is for names.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) pattern: String,
    /// Path of a folder from the place's root.
    pub(crate) path: String,
    /// Leave out `.git` and what the `.gitignore` files below `path` exclude.
    #[serde(default)]
    pub(crate) gitignore: bool,
    /// Most paths, 1 to 10000. All that fit are counted.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default = "default_entries")]
    pub(crate) limit: usize,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    pub(crate) place: Option<String>,
}

/// Files that fit.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsGlobbed {
    /// Place.
    pub(crate) place: String,
    /// Paths from the place's root, in their order.
    pub(crate) paths: Vec<String>,
    /// Number of files that fit.
    pub(crate) count: u64,
    /// Number of files that fit and are not in `paths`.
    pub(crate) left: u64,
    #[serde(flatten)]
    pub(crate) unread: FsUnread,
}

/// What a search could not read.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FsUnread {
    /// Number of files and folders that could not be read, or not whole.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) unreadable_count: u64,
    /// The first of them, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

tools! { pub(crate) FAMILY: "fs" for service Files, singleton files;
    fs_read: FsRead => FsContent = Files::read {
        name: "fs.read", title: "Read a file of a place", effect: Read,
        result_budget_bytes: 32 * 1024 * 1024, rate: RateClass::File,
    };
    fs_write: FsWrite => FsWritten = Files::write {
        name: "fs.write", title: "Write a file of a place", effect: Idempotent, risk: Risk::Medium,
        rate: RateClass::File,
    };
    fs_list: FsList => FsListed = Files::list {
        name: "fs.list", title: "List a folder of a place", effect: Read, rate: RateClass::File,
    };
    fs_create_dir: FsCreateDir => FsPath = Files::create_dir {
        name: "fs.create_dir", title: "Make a folder in a place", effect: Idempotent,
        risk: Risk::Medium, rate: RateClass::File,
    };
    fs_delete: FsDelete => FsPath = Files::delete {
        name: "fs.delete", title: "Delete from a place", effect: Destroy, risk: Risk::High,
        timeout_secs: 600, rate: RateClass::File,
    };
    fs_edit: FsEdit => FsEdited = Files::edit {
        name: "fs.edit", title: "Edit a file of a place", risk: Risk::Medium, rate: RateClass::File,
    };
    fs_multi_edit: FsMultiEdit => FsEdited = Files::multi_edit {
        name: "fs.multi_edit", title: "Edit a file of a place several times", risk: Risk::Medium,
        rate: RateClass::File,
    };
    fs_grep: FsGrep => FsGrepped = Files::grep {
        name: "fs.grep", title: "Search files of a place", effect: Read, timeout_secs: 300,
        rate: RateClass::File,
    };
    fs_glob: FsGlob => FsGlobbed = Files::glob {
        name: "fs.glob", title: "Find files of a place", effect: Read, timeout_secs: 300,
        rate: RateClass::File,
    };
}
