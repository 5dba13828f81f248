//! Error type of logs.

use hivekeep_kernel::{Fault, Layer, ToolError, codes};
use hivekeep_store::{Error, StreamId};

/// Failure to read or write a log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The journal refused, or has stopped.
    #[error("the stream {stream}: {source}")]
    Journal {
        /// Stream concerned.
        stream: StreamId,
        /// Error of the journal.
        source: Error,
    },
    /// The stream makes no sense.
    #[error("the stream {stream}: {what}")]
    Unreadable {
        /// Stream concerned.
        stream: StreamId,
        /// Reason.
        what: String,
    },
    /// The log has ended: nothing can be decided any more.
    #[error("the stream {stream} has ended: {why}")]
    Ended {
        /// Stream concerned.
        stream: StreamId,
        /// Reason.
        why: String,
    },
    /// Too many decisions wait to be written.
    #[error("too much waits to be written to the stream {stream}")]
    Busy {
        /// Stream concerned.
        stream: StreamId,
    },
    /// The program has a defect.
    #[error("the stream {stream}: {what}")]
    Defect {
        /// Stream concerned.
        stream: StreamId,
        /// Description.
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
        let failed = |code| Self::new(Layer::Store, code, error.to_string());
        match &error {
            LogError::Journal { source: Error::TooLarge { .. }, .. } => {
                failed(codes::TOO_LARGE).next("ask for less, or raise `store.max_record_kb`")
            }
            LogError::Journal { .. } | LogError::Ended { .. } => failed(codes::JOURNAL_FAILED)
                .next("look at `hivekeep check` and the daemon's log; nothing was acknowledged")
                .retryable(),
            LogError::Unreadable { .. } => failed(codes::STATE_UNREADABLE)
                .next("restore the state directory from a backup; nothing was overwritten"),
            LogError::Busy { .. } => failed(codes::BUSY).next("try again soon").retryable(),
            LogError::Defect { .. } => Self::internal(error.to_string()),
        }
    }
}
