//! File engine requests: an operation on files, and its outcome, as the engine encodes them. Both travel
//! as data frames on [`crate::Stream::Content`], for either can be larger than a frame.

use serde::{Deserialize, Serialize};

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
