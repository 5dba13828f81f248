//! Error type of the journal and of events.

use std::io;
use std::path::PathBuf;

use crate::{Seq, StreamId};

/// Refusal or failure of an operation of the journal or of events.
///
/// Errors are `Clone` because one failed commit answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The file system has no room. After an append nothing was acknowledged and the journal is
    /// poisoned; free space, then reopen it.
    #[error("the disk is full while {doing} ({cause}): free space, then reopen the journal")]
    Full {
        /// Step that failed.
        doing: &'static str,
        /// Error as the system reported it.
        cause: String,
    },
    /// Any other input/output failure.
    #[error("{doing} failed: {cause}")]
    Io {
        /// Step that failed.
        doing: &'static str,
        /// Kind of the error, for callers that act on it.
        kind: io::ErrorKind,
        /// Error as the system reported it.
        cause: String,
    },
    /// An earlier commit failed; the journal refuses everything until it is reopened. Reopening
    /// tells whether the failed batch is there.
    #[error("the journal stopped after a failed commit ({cause}): reopen it")]
    Poisoned {
        /// Failure that stopped the journal.
        cause: String,
    },
    /// The journal was closed in order.
    #[error("the journal is closed")]
    Closed,
    /// No answer came within `append_timeout_secs`. The record may still become durable: the
    /// outcome is unknown, not negative.
    #[error("the journal did not answer within {after_secs} s; the outcome is unknown")]
    Timeout {
        /// Time waited, in seconds.
        after_secs: u64,
    },
    /// The state on disk cannot be trusted. Nothing was changed.
    #[error("the state is unreadable{}: {what}; {next_step}", place(.stream, .seq))]
    Unreadable {
        /// Stream concerned, if it is one stream.
        stream: Option<StreamId>,
        /// Sequence number concerned, if it is one record.
        seq: Option<Seq>,
        /// Description of the damage.
        what: String,
        /// Next step for a person.
        next_step: &'static str,
    },
    /// The database was written by a newer version of the program.
    #[error("the state has schema {found}, this program knows up to {known}: run the newer one")]
    TooNew {
        /// Schema on disk.
        found: u32,
        /// Newest schema known to this program.
        known: u32,
    },
    /// Another process has the directory open.
    #[error("{} is in use by another process", dir.display())]
    Locked {
        /// Directory of the journal.
        dir: PathBuf,
    },
    /// A value is above its limit.
    #[error("{what} of {bytes} bytes is above the limit of {max_bytes} bytes")]
    TooLarge {
        /// Name of the value.
        what: &'static str,
        /// Size of the value.
        bytes: usize,
        /// Maximum size of the value, in bytes.
        max_bytes: usize,
    },
    /// The request is invalid, whatever the state of the disk.
    #[error("invalid request: {what}")]
    Invalid {
        /// Reason, as a clause.
        what: String,
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

/// Extension that names the step an input/output error belongs to.
pub(crate) trait IoContext<T> {
    fn doing(self, what: &'static str) -> Result<T, Error>;
}

impl<T> IoContext<T> for Result<T, io::Error> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::io(what, &error))
    }
}

impl<T> IoContext<T> for Result<T, sled::Error> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::sled(what, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unreadable_is_told_by_its_place() {
        let stream = StreamId::parse("a/b").unwrap();
        let what = || "it is cut".to_owned();
        for (error, place) in [
            (Error::unreadable("it is cut"), ""),
            (Error::unreadable_at(&stream, None, what()), " at a/b"),
            (Error::unreadable_at(&stream, Some(Seq::new(3)), what()), " at a/b record 3"),
            (Error::unreadable_event(Seq::new(3), what()), " at event 3"),
        ] {
            assert_eq!(
                error.to_string(),
                format!("the state is unreadable{place}: it is cut; {RESTORE}")
            );
        }
    }

    #[test]
    fn a_full_disk_and_a_corrupt_database_are_not_any_failure() {
        use io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
        for kind in [StorageFull, QuotaExceeded] {
            assert!(matches!(Error::io("it", &kind.into()), Error::Full { doing: "it", .. }));
        }
        let missing = Err::<(), _>(io::Error::from(NotFound)).doing("it").unwrap_err();
        assert!(matches!(missing, Error::Io { doing: "it", kind: NotFound, .. }));
        let sled = |error| Error::sled("it", error);
        assert!(matches!(sled(sled::Error::Io(StorageFull.into())), Error::Full { .. }));
        assert!(matches!(
            sled(sled::Error::Corruption { at: None, bt: () }),
            Error::Unreadable { .. }
        ));
        let other = sled(sled::Error::Unsupported("so".to_owned()));
        assert!(matches!(other, Error::Io { kind: io::ErrorKind::Other, .. }), "{other}");
        assert!(matches!(Error::invalid("so"), Error::Invalid { what } if what == "so"));
    }
}
