//! Errors of operations, as they travel: what is wrong with which path.

use std::{fmt, io};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Refusal or failure of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// Kind, which callers act on.
    pub kind: FileErrorKind,
    /// Message for people; names the path.
    pub message: String,
    /// Number of the edit that it is about, from 1.
    pub edit: Option<u64>,
    /// Number of occurrences that were found.
    pub occurrences: Option<u64>,
    /// Size of the file.
    pub size_bytes: Option<u64>,
}

/// Kinds of errors. New ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorKind {
    /// The path makes no sense.
    InvalidPath,
    /// The path leads out of the root.
    Outside,
    /// There is nothing.
    NotFound,
    /// The kernel denies it.
    PermissionDenied,
    /// A folder was expected.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// A device, a pipe or a socket.
    NotAFile,
    /// The folder is not empty.
    NotEmpty,
    /// Something stands there.
    Exists,
    /// The disk is full.
    NoSpace,
    /// Larger than the engine works on.
    TooLarge,
    /// Not UTF-8 text.
    NotText,
    /// The text does not occur.
    NoMatch,
    /// The text is not unique.
    ManyMatches,
    /// The pattern makes no sense.
    InvalidPattern,
    /// The file kept changing.
    Contended,
    /// The range begins behind the end.
    PastEnd,
    /// Any other error of the operating system.
    Failed,
    /// The file system keeps no metadata.
    NoMetadata,
    /// The metadata cannot be kept.
    InvalidMetadata,
}

impl FileError {
    /// An error without figures.
    pub fn new(kind: FileErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), edit: None, occurrences: None, size_bytes: None }
    }

    /// Whether the file system has no room.
    pub fn is_no_space(&self) -> bool {
        self.kind == FileErrorKind::NoSpace
    }
}

/// Error for a failed system call on `path`.
pub(crate) fn failed(error: &io::Error, path: impl fmt::Display) -> FileError {
    let errno = Errno::from_io_error(error);
    // The resolver's own refusal of a path that leaves the handle carries no number.
    if errno.is_none() && error.kind() == io::ErrorKind::PermissionDenied {
        return crate::place_path::outside(path);
    }
    let (kind, what) = match errno {
        Some(Errno::NOENT) => (FileErrorKind::NotFound, "does not exist"),
        Some(Errno::XDEV) => return crate::place_path::outside(path),
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (FileErrorKind::PermissionDenied, "may not be used this way by this user")
        }
        Some(Errno::NOTDIR) => {
            (FileErrorKind::NotADirectory, "is not a folder, or a part of it is not")
        }
        Some(Errno::ISDIR) => (FileErrorKind::IsADirectory, "is a folder"),
        Some(Errno::NOTEMPTY) => (FileErrorKind::NotEmpty, "is not empty"),
        Some(Errno::NAMETOOLONG) => (FileErrorKind::InvalidPath, "has a name that is too long"),
        Some(Errno::LOOP) => {
            (FileErrorKind::InvalidPath, "is a link to itself, or passes too many")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => (FileErrorKind::NoSpace, "finds no room on the disk"),
        _ => return FileError::new(FileErrorKind::Failed, format!("`{path}`: {error}")),
    };
    FileError::new(kind, format!("`{path}` {what}"))
}
