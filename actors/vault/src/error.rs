//! Error type of the vault, and its conversion to [`ToolError`].

use std::io;
use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};

use crate::{codes, front::MalformedFrontMatter};

/// Refusal or failure; each variant asks something else of the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is not that of a note, or not an allowed one.
    #[error("`{path}` is not a valid path in the vault: {why}")]
    BadPath {
        /// Path as given.
        path: String,
        /// Reason, as a clause whose subject is the path.
        why: &'static str,
    },
    /// The path names something other than a note.
    #[error("`{path}` is not a note: names of notes end in {extensions}")]
    NotANote {
        /// Path as given.
        path: String,
        /// Extensions of notes.
        extensions: String,
    },
    /// Nothing exists at the path.
    #[error("there is no `{path}`")]
    NotFound {
        /// Path as given.
        path: String,
    },
    /// A folder is where a note was expected, or the reverse.
    #[error("`{path}` is {found}")]
    WrongKind {
        /// Path as given.
        path: String,
        /// Kind of what is there.
        found: &'static str,
    },
    /// Something exists at the path already.
    #[error("`{path}` exists")]
    Exists {
        /// Path as given.
        path: String,
    },
    /// The note is larger than allowed.
    #[error("`{path}` has {bytes} bytes, a note at most {most}")]
    TooLarge {
        /// Path as given.
        path: String,
        /// Size that it has, or would have.
        bytes: u64,
        /// Maximum size.
        most: u64,
    },
    /// All notes together would exceed their limit. Nothing was written.
    #[error("the vault has {} of its {} MiB: there is no room for the note", .bytes >> 20, .most >> 20)]
    VaultFull {
        /// Size of the vault's files.
        bytes: u64,
        /// Maximum size.
        most: u64,
    },
    /// The note is not UTF-8.
    #[error("`{path}` is not text: byte {at} is not UTF-8")]
    NotText {
        /// Path as given.
        path: String,
        /// Offset of the first bad byte.
        at: usize,
    },
    /// The front matter is not a YAML mapping, or cannot be changed without harm.
    #[error("the front matter of `{path}`, line {}, column {}: {}", .what.line, .what.column, .what.why)]
    Malformed {
        /// Path as given.
        path: String,
        /// Position and reason.
        what: MalformedFrontMatter,
    },
    /// The pattern is not a regular expression, or is too large.
    #[error("the pattern: {0}")]
    Pattern(String),
    /// The pattern's matches in a note take too long to find. Nothing was changed.
    #[error("`{path}`: {why}")]
    PatternTooSlow {
        /// Path as given.
        path: String,
        /// Reason for people.
        why: String,
    },
    /// Another program changed the note at each attempt between reading and writing.
    #[error("`{path}` is being changed by another program")]
    Contended {
        /// Path as given.
        path: String,
    },
    /// The vault is switched off.
    #[error("there is no vault: `vault.enabled` is false")]
    Disabled,
    /// The folder cannot be opened.
    #[error("the vault's folder {path} cannot be opened: {source}")]
    Unavailable {
        /// Path as configured.
        path: String,
        /// Error of the system when it was made, opened or checked.
        source: io::Error,
    },
    /// Too many changes wait for their turn. Nothing was done.
    #[error("too many changes of notes wait for their turn: this one was not taken")]
    Busy,
    /// The host's disk is below its floor. Nothing was changed.
    #[error("{}", .0.message)]
    NoRoom(Box<ToolError>),
    /// The caller no longer waits.
    #[error("the call was cancelled")]
    Cancelled,
    /// Any other system error.
    #[error("{action}: {source}")]
    Io {
        /// Operation and its object.
        action: String,
        /// Error of the system, without the action.
        source: io::Error,
    },
}

impl Error {
    /// Wraps a system error, for `map_err`.
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
                "fix it there with the action `replace`, or `write` the note anew"
            }
            Self::Pattern(_) => "fix the pattern, or leave out `regex` to search for plain text",
            Self::PatternTooSlow { .. } => {
                "write a smaller pattern, one that stays in a line, or replace plain text"
            }
            Self::Contended { .. } => "try again",
            Self::Disabled => "set `vault.enabled` and restart the daemon",
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
        let mut refused_call = Self::new(Layer::Actor, error.code(), error.to_string());
        refused_call.next_step = error.next_step().map(str::to_owned);
        match error {
            Error::NoRoom(refused) => *refused,
            Error::Malformed { what, .. } => {
                refused_call.detail("line", what.line).detail("column", what.column)
            }
            Error::TooLarge { bytes, most, .. } => {
                refused_call.detail("size_bytes", bytes).detail("max_bytes", most)
            }
            Error::VaultFull { bytes, most } => {
                refused_call.detail("used_bytes", bytes).detail("max_bytes", most)
            }
            Error::Busy => refused_call.retry_after(Duration::from_millis(500)),
            Error::Contended { .. } | Error::Unavailable { .. } => refused_call.retryable(),
            _ => refused_call,
        }
    }
}
