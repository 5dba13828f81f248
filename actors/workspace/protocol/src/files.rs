//! Files of the guest. Content travels as data frames on [`crate::Stream::Content`].

use serde::{Deserialize, Serialize};

/// Sends a byte range of a file to the host, then the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRead {
    /// Absolute path.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Most bytes; `None` reads to the end.
    pub limit: Option<u64>,
}

/// Answer to [`FileRead`], after the last data frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReadDone {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// The file's size when it was opened.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Receives a file from the host as data frames closed by an end frame.
///
/// Written to a temporary file beside the target, synced, then renamed over it:
/// the target holds the old content or the new, never a part. A link that ends
/// early or a cancel leaves the old content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWrite {
    /// Absolute path; missing parents are made.
    pub path: String,
    /// Permission bits; `None` keeps an existing file's, else 0644.
    pub mode: Option<u32>,
    /// Total bytes that will follow. Fewer or more is an error.
    pub size_bytes: u64,
}

/// Answer to [`FileWrite`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWritten {
    /// Bytes written.
    pub bytes: u64,
    /// The file existed before.
    pub replaced: bool,
    /// Permission bits it now has.
    pub mode: u32,
}

/// Replaces text in a UTF-8 file, atomically, keeping its mode and owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdit {
    /// Absolute path.
    pub path: String,
    /// Exact text to find; not empty.
    pub old_string: String,
    /// What to put in its place.
    pub new_string: String,
    /// Replace every occurrence instead of the first.
    pub replace_all: bool,
}

/// Answer to [`FileEdit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdited {
    /// Occurrences replaced.
    pub replacements: u64,
    /// Occurrences of `old_string` there were.
    pub occurrences: u64,
}

/// Lists a directory sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    /// Absolute path of a directory.
    pub path: String,
    /// Continue after this name.
    pub after: Option<String>,
    /// At most this many (and [`crate::limits::MAX_LIST_ENTRIES`]).
    pub limit: u32,
}

/// Answer to [`FileList`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileListed {
    /// In byte order of their names.
    pub entries: Vec<FileEntry>,
    /// There are more after the last.
    pub more: bool,
}

/// Asks about one path without following a final symlink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Absolute path.
    pub path: String,
}

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name without the directory; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// What it is.
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
