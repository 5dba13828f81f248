//! Errors of the audit log.

use std::{io, path::PathBuf};

/// The reason why the log cannot be opened, written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The last line of the log is not one.
    #[error("{}: its last line is not an entry", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// More waits to be synced than there is room for: the disk does not take it.
    #[error("the disk is behind with {waiting_bytes} bytes of the audit log")]
    Behind {
        /// Bytes that wait.
        waiting_bytes: usize,
    },
    /// An entry could not be written, and nothing has been since.
    #[error("the audit log cannot be written: {0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
