//! File requests: content, folders, operations of the file engine, and watches of changes.
//!
//! Content travels as data frames on [`crate::Stream::Content`], and so do an operation and its outcome, as the
//! engine encodes them: either can be larger than a frame. A watch reports changes below a folder as the guest's
//! kernel reports them. It lives in the guest's daemon, and ends with it, by [`WatchEnd`], or when nobody has read it
//! for [`crate::limits::WATCH_IDLE_SECS`].

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
    /// File and what is written to it.
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
    /// Directory, whose own entries are not listed with it.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Device, socket or pipe.
    Other,
}

/// Receives an encoded operation from the host as data frames closed by an end frame, runs it beneath the
/// guest's root and sends its encoded outcome, then the reply. An operation that fails has an outcome, too.
///
/// A cancelled search ends early. A cancelled change is made whole or not at all, and answered with what
/// became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFileOperation {
    /// Number of bytes that will follow. Fewer or more is an error.
    pub operation_bytes: u64,
    /// True if it walks a tree: such operations have places of their own, so that they hold up no other.
    pub walks: bool,
}

/// Runs an operation as [`RunFileOperation`] does, with the rights of a user and from a folder on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFileOperationIn {
    /// Operation that will follow.
    pub operation: RunFileOperation,
    /// User of the guest, a name or a number, whose rights count and to whom belongs what is made;
    /// `None` is root.
    pub user: Option<String>,
    /// Absolute path of the folder that relative paths begin at.
    pub folder: String,
}

/// Answer to [`RunFileOperation`] and [`RunFileOperationIn`], after the last data frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOperationDone {
    /// Number of bytes sent.
    pub outcome_bytes: u64,
}

/// Begins to watch a folder. At most [`crate::limits::MAX_WATCHES`] are there at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchStart {
    /// Absolute path.
    pub path: String,
    /// True if the folders below are watched too, those that are made later among them.
    pub recursive: bool,
    /// User whose rights count; `None` is root.
    pub user: Option<String>,
}

/// Answer to [`WatchStart`]: every later change is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchStarted {
    /// Id of the watch, never given twice.
    pub watch: u64,
}

/// Reads the changes behind a number, as soon as there are some or the time is over. Reading consumes
/// nothing; the oldest changes are dropped when there are many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRead {
    /// Id of the watch.
    pub watch: u64,
    /// Number behind which to read: [`WatchChanges::next`] of the last answer, or 0.
    pub after: u64,
    /// Longest wait, at most [`crate::limits::MAX_WAIT_MS`].
    pub wait_ms: u64,
}

/// Answer to [`WatchRead`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchChanges {
    /// Changes by ascending number, at most [`crate::limits::MAX_CHANGES`].
    pub changes: Vec<WatchChange>,
    /// Number behind which to go on.
    pub next: u64,
    /// True if some before `next` were dropped.
    pub lost: bool,
}

/// Change below a watched folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchChange {
    /// Number, ascending.
    pub seq: u64,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Path from the watched folder on, `.` for itself; bytes that are not UTF-8 are replaced.
    pub path: String,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The name is new: made, or moved here.
    Create,
    /// The content was written.
    Write,
    /// The name is gone.
    Remove,
    /// The name was moved away.
    Rename,
    /// Mode, owner or times are others.
    Chmod,
}

/// Ends a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEnd {
    /// Id of the watch.
    pub watch: u64,
}

/// Answer to [`WatchEnd`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEnded {
    /// False if there was none of that id.
    pub existed: bool,
}
