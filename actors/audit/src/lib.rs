//! Audit log: an append-only, hash-chained file of what was asked of the daemon, by whom, and what
//! became of it.
//!
//! ```text
//! append ─► run folder: tail.a | tail.b ─► (every sync_ms) state folder: audit-<first seq>.log, fdatasync
//!           one write(2), then answered                      └─► head: how far the log reaches
//! ```
//! A line is `<SHA-256> <JSON>`; its hash is that of the hash of the line before and the JSON, so a
//! line that is changed, taken out or put in breaks the chain from there on ([`verify()`]). A chain
//! has no secret: whoever can write the files can make a new one. The number and hash of the last
//! line, kept elsewhere, tell such a log apart.
//!
//! An entry is with the kernel when [`AuditLog::append`] returns, so that killing the daemon loses
//! none; a loss of power loses at most what the last `sync_ms` had. The tails lie in the run folder,
//! in memory on most hosts, so that a slow disk holds no caller up. What cannot be written makes
//! the log unavailable, and then nothing may be done that would have to be in it.

mod chain;
mod entry;
mod files;
mod log;
mod verify;
mod worker;

use std::{io, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use chain::{ChainHash, Head};
pub use entry::{AuditPage, Entry, Filter, entries, newest};
pub use log::AuditLog;
pub use verify::{AuditFault, Verification, verify};

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

/// Size of the audit log, and the time until an entry is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// True keeps the audit log. Each call then takes a little longer.
    pub enabled: bool,
    /// Time after which an entry is on the disk, in milliseconds. A loss of power loses no older one.
    #[schemars(range(min = 1, max = 10_000))]
    pub sync_ms: u64,
    /// Size of one file, in MiB.
    #[schemars(range(min = 1, max = 1024))]
    pub segment_mb: u64,
    /// Size of all files, in MiB; beyond it the oldest go, which the log says itself.
    pub keep_mb: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { enabled: false, sync_ms: 20, segment_mb: 16, keep_mb: 1024 }
    }
}

impl Options {
    /// Settings that cannot work, as key and reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.keep_mb < self.segment_mb.saturating_mul(4) {
            wrong.push(("keep_mb", "must be at least four times `segment_mb`".to_owned()));
        }
        wrong
    }
}

#[cfg(test)]
mod tests;
