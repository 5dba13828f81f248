//! Watch requests: changes below a folder, as the guest's kernel reports them.
//!
//! A watch lives in the guest's daemon, and ends with it, by [`WatchEnd`], or when nobody has read it for
//! [`crate::limits::WATCH_IDLE_SECS`].

use serde::{Deserialize, Serialize};

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
