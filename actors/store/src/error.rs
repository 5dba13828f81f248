//! What the journal answers when it cannot do what was asked.

use std::io;
use std::path::PathBuf;

use crate::{Seq, StreamId};

/// Why a journal, event or blob operation was refused or failed.
///
/// Errors are `Clone` because one failed commit answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The file system has no room. On an append: nothing was acknowledged and
    /// the journal is now poisoned; free space, then reopen it.
    #[error("the disk is full while {doing} ({cause}): free space, then reopen the journal")]
    Full {
        /// The step that failed.
        doing: &'static str,
        /// The error as the system gave it.
        cause: String,
    },
    /// Any other input/output failure.
    #[error("{doing} failed: {cause}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The kind, for callers that act on it.
        kind: io::ErrorKind,
        /// The error as the system gave it.
        cause: String,
    },
    /// An earlier commit failed; the journal refuses everything until it is
    /// reopened. Whether the failed batch is there is known after reopening.
    #[error("the journal stopped after a failed commit ({cause}): reopen it")]
    Poisoned {
        /// The failure that stopped it.
        cause: String,
    },
    /// The journal was closed in order.
    #[error("the journal is closed")]
    Closed,
    /// No answer within `append_timeout_secs`. The record may still become
    /// durable: the outcome is unknown, not negative.
    #[error("the journal did not answer within {after_secs} s; the outcome is unknown")]
    Timeout {
        /// How long was waited, in seconds.
        after_secs: u64,
    },
    /// State on disk that cannot be trusted. Nothing was changed.
    #[error("the state is unreadable{}: {what}; {next_step}", place(.stream, .seq))]
    Unreadable {
        /// The stream concerned, when it is one stream.
        stream: Option<StreamId>,
        /// The sequence number concerned, when it is one record.
        seq: Option<Seq>,
        /// What was found.
        what: String,
        /// What a person does next.
        next_step: &'static str,
    },
    /// The database was written by a newer version of the program.
    #[error("the state has schema {found}, this program knows up to {known}: run the newer one")]
    TooNew {
        /// The schema on disk.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// Another process has the directory open.
    #[error("{} is in use by another process", dir.display())]
    Locked {
        /// The journal's directory.
        dir: PathBuf,
    },
    /// A value above its limit. Large values belong in [`crate::Blobs`].
    #[error("{what} of {bytes} bytes is above the limit of {max_bytes} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// A request that cannot be right, whatever the state of the disk.
    #[error("invalid request: {what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// No blob has this hash.
    #[error("no blob {hash}")]
    NoBlob {
        /// The hash asked for, in hexadecimal.
        hash: String,
    },
}

const RESTORE: &str = "nothing was changed: restore the state directory from a backup, or move it away to start empty";

fn place(stream: &Option<StreamId>, seq: &Option<Seq>) -> String {
    match (stream, seq) {
        (Some(stream), Some(seq)) => format!(" at {stream} record {seq}"),
        (Some(stream), None) => format!(" at {stream}"),
        (None, Some(seq)) => format!(" at event {seq}"),
        (None, None) => String::new(),
    }
}

impl Error {
    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Error::Unreadable { stream: None, seq: None, what: what.into(), next_step: RESTORE }
    }

    pub(crate) fn unreadable_at(stream: &StreamId, seq: Option<Seq>, what: String) -> Self {
        Error::Unreadable { stream: Some(stream.clone()), seq, what, next_step: RESTORE }
    }

    pub(crate) fn unreadable_event(seq: Seq, what: String) -> Self {
        Error::Unreadable { stream: None, seq: Some(seq), what, next_step: RESTORE }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    pub(crate) fn io(doing: &'static str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full { doing, cause: error.to_string() }
            }
            kind => Error::Io { doing, kind, cause: error.to_string() },
        }
    }

    pub(crate) fn sled(doing: &'static str, error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => Error::io(doing, &error),
            sled::Error::Corruption { .. } => {
                Error::unreadable(format!("the database found corruption while {doing}"))
            }
            other => Error::Io { doing, kind: io::ErrorKind::Other, cause: other.to_string() },
        }
    }
}

/// Names the step an input/output error belongs to.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, Error>;
}

impl<T> Doing<T> for Result<T, io::Error> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::io(what, &error))
    }
}

impl<T> Doing<T> for Result<T, sled::Error> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::sled(what, error))
    }
}
