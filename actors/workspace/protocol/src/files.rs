//! File requests. Content travels as data frames on [`crate::Stream::Content`].

use serde::{Deserialize, Serialize};

/// Sends a byte range of a file to the host, then the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// Absolute path.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Maximum number of bytes; `None` reads to the end.
    pub limit: Option<u64>,
}

/// Answer to [`ReadFile`], after the last data frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFileReply {
    /// Number of bytes sent.
    pub sent_bytes: u64,
    /// Size of the file when it was opened.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Receives a file from the host as data frames closed by an end frame.
///
/// The content is written beside the target without a name, synced, then put in its place: the target
/// has the old content or the new, never a part. A link that ends early or a cancel leaves the old
/// content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// Absolute path; missing parents are made.
    pub path: String,
    /// Permission bits; `None` keeps an existing file's, else 0644.
    pub mode: Option<u32>,
    /// Number of bytes that will follow. Fewer or more is an error.
    pub size_bytes: u64,
}

/// [`WriteFile`] by a user of the guest, with no more rights than theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFileAs {
    /// File.
    pub write: WriteFile,
    /// Name or number, with `:GROUP` if wished.
    pub user: String,
}

/// Answer to [`WriteFile`] and [`WriteFileAs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFileReply {
    /// Number of bytes written.
    pub bytes: u64,
    /// True if the file existed before.
    pub replaced: bool,
    /// Permission bits of the file now.
    pub mode: u32,
}

/// Replaces text in a UTF-8 file, atomically, keeping its mode and owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditFile {
    /// Absolute path.
    pub path: String,
    /// Exact text to find; not empty.
    pub old_string: String,
    /// Replacement text.
    pub new_string: String,
    /// Replace every occurrence instead of the first.
    pub replace_all: bool,
}

/// Answer to [`EditFile`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditFileReply {
    /// Number of occurrences replaced.
    pub replacements: u64,
    /// Number of occurrences of `old_string` found.
    pub occurrences: u64,
}

/// Lists a directory sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFolder {
    /// Absolute path of a directory.
    pub path: String,
    /// Continue after this name.
    pub after: Option<String>,
    /// Maximum number of entries (at most [`crate::limits::MAX_LIST_ENTRIES`]).
    pub limit: u32,
}

/// Answer to [`ListFolder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFolderReply {
    /// Entries in byte order of their names.
    pub entries: Vec<FileEntry>,
    /// True if there are more after the last.
    pub more: bool,
}

/// Describes one path without following a final symlink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Absolute path.
    pub path: String,
}

/// Directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name without the directory; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, Unix seconds.
    pub modified_unix_secs: i64,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Device, socket or pipe.
    Other,
}
