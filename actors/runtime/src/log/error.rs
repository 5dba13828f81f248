//! Why a log cannot be read or written.

use hivekeep_kernel::{Fault, Layer, ToolError, codes};
use hivekeep_store::{Error, StreamId};

/// Why a log cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The journal refuses, or has stopped.
    #[error("the stream {stream}: {source}")]
    Journal {
        /// Of which stream.
        stream: StreamId,
        /// As the journal says.
        source: Error,
    },
    /// A stream makes no sense.
    #[error("the stream {stream}: {what}")]
    Unreadable {
        /// Which.
        stream: StreamId,
        /// In words.
        what: String,
    },
    /// Nothing can be decided any more.
    #[error("the stream {stream} has ended: {why}")]
    Ended {
        /// Which.
        stream: StreamId,
        /// In words.
        why: String,
    },
    /// Too much waits to be written.
    #[error("too much waits to be written to the stream {stream}")]
    Busy {
        /// Which.
        stream: StreamId,
    },
    /// The program is wrong.
    #[error("the stream {stream}: {what}")]
    Defect {
        /// Of which stream.
        stream: StreamId,
        /// In words.
        what: String,
    },
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<LogError> for ToolError {
    fn from(error: LogError) -> Self {
        let told = |code| Self::new(Layer::Store, code, error.to_string());
        match &error {
            LogError::Journal { source: Error::TooLarge { .. }, .. } => {
                told(codes::TOO_LARGE).next("ask for less, or raise `store.max_record_kb`")
            }
            LogError::Journal { .. } | LogError::Ended { .. } => told(codes::JOURNAL_FAILED)
                .next("look at `hivekeep check` and the daemon's log; nothing was acknowledged")
                .retryable(),
            LogError::Unreadable { .. } => told(codes::STATE_UNREADABLE)
                .next("restore the state directory from a backup; nothing was overwritten"),
            LogError::Busy { .. } => told(codes::BUSY).next("try again soon").retryable(),
            LogError::Defect { .. } => Self::internal(error.to_string()),
        }
    }
}
