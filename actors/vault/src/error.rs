//! What the vault refuses or fails with, and the one error of the house it becomes.

use std::io;
use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};

use crate::{codes, front::Malformed};

/// Each variant asks something else of the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No path of a note, or none that is allowed.
    #[error("`{path}` is no path in the vault: {why}")]
    BadPath {
        /// As given.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something else than a note.
    #[error("`{path}` is no note: names of notes end in {extensions}")]
    NotANote {
        /// As given.
        path: String,
        /// Those that are.
        extensions: String,
    },
    /// There is nothing.
    #[error("there is no `{path}`")]
    NotFound {
        /// As given.
        path: String,
    },
    /// A folder where a note was expected, or the reverse.
    #[error("`{path}` is {found}")]
    WrongKind {
        /// As given.
        path: String,
        /// What is there.
        found: &'static str,
    },
    /// Something is there already.
    #[error("`{path}` exists")]
    Exists {
        /// As given.
        path: String,
    },
    /// Larger than a note may be.
    #[error("`{path}` has {bytes} bytes, a note at most {most}")]
    TooLarge {
        /// As given.
        path: String,
        /// What it has, or would have.
        bytes: u64,
        /// What it may have.
        most: u64,
    },
    /// All notes together would take more than they may. Nothing was written.
    #[error("the vault has {} of its {} MiB: there is no room for the note", .bytes >> 20, .most >> 20)]
    VaultFull {
        /// What its files take.
        bytes: u64,
        /// What they may take.
        most: u64,
    },
    /// Not UTF-8.
    #[error("`{path}` is no text: byte {at} is not UTF-8")]
    NotText {
        /// As given.
        path: String,
        /// Counted from 0.
        at: usize,
    },
    /// The front matter is no YAML mapping, or cannot be changed without harm.
    #[error("the front matter of `{path}`, line {}, column {}: {}", .what.line, .what.column, .what.why)]
    Malformed {
        /// As given.
        path: String,
        /// Where and why.
        what: Malformed,
    },
    /// No regular expression, or too large a one.
    #[error("the pattern: {0}")]
    Pattern(String),
    /// A pattern whose matches in a note take too long to find. Nothing was changed.
    #[error("`{path}`: {why}")]
    PatternTooSlow {
        /// As given.
        path: String,
        /// For people.
        why: String,
    },
    /// Another program changed the note each time between reading and writing.
    #[error("`{path}` is being changed by another program")]
    Contended {
        /// As given.
        path: String,
    },
    /// The vault is switched off.
    #[error("there is no vault: `vault.enabled` is false")]
    Disabled,
    /// The folder cannot be opened.
    #[error("the vault's folder {path} cannot be opened: {source}")]
    Unavailable {
        /// As configured.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Too many changes wait for their turn. Nothing was done.
    #[error("too many changes of notes wait for their turn: this one was not taken")]
    Busy,
    /// The host's disk is below its floor. Nothing was changed.
    #[error("{}", .0.message)]
    NoRoom(Box<ToolError>),
    /// Nobody waits for it any more.
    #[error("the call was cancelled")]
    Cancelled,
    /// Everything else the system refuses.
    #[error("{action}: {source}")]
    Io {
        /// What was tried, on what.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source: source.into() }
    }

    /// The error code of the house that it becomes.
    pub(crate) fn code(&self) -> &'static ErrorCode {
        match self {
            Self::BadPath { .. } => codes::INVALID_PATH,
            Self::NotANote { .. } => codes::NOT_A_NOTE,
            Self::NotFound { .. } => codes::NOTE_NOT_FOUND,
            Self::WrongKind { .. } => codes::WRONG_KIND,
            Self::Exists { .. } => codes::NOTE_EXISTS,
            Self::TooLarge { .. } => codes::NOTE_TOO_LARGE,
            Self::VaultFull { .. } => codes::VAULT_FULL,
            Self::NotText { .. } => codes::NOT_TEXT,
            Self::Malformed { .. } => codes::MALFORMED_FRONTMATTER,
            Self::Pattern(_) => codes::INVALID_PATTERN,
            Self::PatternTooSlow { .. } => codes::PATTERN_TOO_SLOW,
            Self::Contended { .. } => codes::NOTE_CONTENDED,
            Self::Disabled => codes::VAULT_DISABLED,
            Self::Unavailable { .. } => codes::VAULT_UNAVAILABLE,
            Self::Busy => codes::BUSY,
            Self::NoRoom(_) => codes::HOST_DISK_FULL,
            Self::Cancelled => codes::CANCELLED,
            Self::Io { .. } => codes::VAULT_IO,
        }
    }

    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadPath { .. } => {
                "name it relative to the vault's root, with `/` between folders: `ideas/one.md`"
            }
            Self::NotANote { .. } => "name a note, or add the extension to `vault.extensions`",
            Self::NotFound { .. } => "the action `list` with `recursive` shows what there is",
            Self::WrongKind { .. } => "the action `list` shows what is what",
            Self::Exists { .. } => "choose another path, or set `overwrite`",
            Self::TooLarge { .. } => "split the note, or raise `vault.max_note_mb`",
            Self::VaultFull { .. } => "delete notes, or raise `vault.max_total_mb`",
            Self::NotText { .. } => "save the note as UTF-8",
            Self::Malformed { .. } => {
                "mend it there with the action `replace`, or `write` the note anew"
            }
            Self::Pattern(_) => "mend the pattern, or leave out `regex` to search for plain text",
            Self::PatternTooSlow { .. } => {
                "write a smaller pattern, one that stays in a line, or replace plain text"
            }
            Self::Contended { .. } => "try again",
            Self::Disabled => "set `vault.enabled` and start the daemon anew",
            Self::Unavailable { .. } => {
                "make the folder readable and writable for the daemon, or mount it; \
                 the next call tries again"
            }
            Self::Busy => "try again after retry_after_ms",
            Self::NoRoom(_) | Self::Cancelled | Self::Io { .. } => return None,
        })
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let mut told = Self::new(Layer::Actor, error.code(), error.to_string());
        told.next_step = error.next_step().map(str::to_owned);
        match error {
            Error::NoRoom(refused) => *refused,
            Error::Malformed { what, .. } => {
                told.detail("line", what.line).detail("column", what.column)
            }
            Error::TooLarge { bytes, most, .. } => {
                told.detail("size_bytes", bytes).detail("max_bytes", most)
            }
            Error::VaultFull { bytes, most } => {
                told.detail("used_bytes", bytes).detail("max_bytes", most)
            }
            Error::Busy => told.retry_after(Duration::from_millis(500)),
            Error::Contended { .. } | Error::Unavailable { .. } => told.retryable(),
            _ => told,
        }
    }
}
