//! Error type of the link, and conversion of its and the guest's errors to [`hivekeep_kernel::ToolError`].

use std::io;
use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_protocol::{EncodeError, FrameError, FrameKind, GuestCode, GuestError, HelloRefusal};

use crate::codes;

/// Failure to make a link, or of a call on it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The guest refuses to serve this host. Trying again is useless.
    #[error("the guest refuses the link: {0}")]
    Refused(HelloRefusal),
    /// The socket belongs to a process other than the guest's machine. Not retried.
    #[error("the socket belongs to uid {actual}, not to uid {expected}")]
    WrongPeer {
        /// Uid given in the endpoint.
        expected: u32,
        /// Uid of the listener.
        actual: u32,
    },
    /// The deadline for connecting passed; the guest may come up later.
    #[error("no guest after {attempts} attempts: {last}")]
    Unreachable {
        /// Number of attempts.
        attempts: u32,
        /// Failure of the last attempt.
        last: AttemptError,
    },
    /// The link is gone; whether the call took effect is unknown.
    #[error("the link is down: {0}")]
    Down(LinkDown),
    /// The call's deadline passed first.
    #[error("the deadline passed ({0})")]
    Deadline(Ending),
    /// The caller cancelled.
    #[error("the call was cancelled ({0})")]
    Cancelled(Ending),
    /// The guest answered with an error.
    #[error(transparent)]
    Guest(GuestError),
    /// The request does not fit a frame; nothing was sent.
    #[error(transparent)]
    Request(EncodeError),
    /// The upload's source had fewer or more bytes than announced; the guest keeps the old file.
    #[error("the source ended at {read_bytes} bytes of {size_bytes} announced, or goes on beyond")]
    SourceSize {
        /// Announced size.
        size_bytes: u64,
        /// Number of bytes read so far; equal to `size_bytes` when there are more.
        read_bytes: u64,
    },
    /// The upload's source failed; the guest keeps the old file.
    #[error("the source could not be read: {0}")]
    Source(io::Error),
    /// The download's sink failed.
    #[error("the sink could not be written: {0}")]
    Sink(io::Error),
    /// The guest's byte count differs from what was transferred.
    #[error("the guest counts {told_bytes} bytes where {passed_bytes} passed")]
    Miscounted {
        /// Number of bytes in the guest's reply.
        told_bytes: u64,
        /// Number of bytes counted here.
        passed_bytes: u64,
    },
}

/// State of a call that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The guest never saw the call.
    NotSent,
    /// The guest confirmed its end.
    Confirmed,
    /// The guest was asked to end it and has not answered: it may yet take effect.
    Unconfirmed,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotSent => "it had not been sent",
            Self::Confirmed => "the guest ended it",
            Self::Unconfirmed => "the guest has not confirmed its end",
        })
    }
}

/// Failure of one attempt to connect.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// Nobody listens, or the connection broke.
    #[error("{0}")]
    Connect(io::Error),
    /// The peer closed without an answer: its port is not open yet.
    #[error("closed without an answer")]
    Closed,
    /// The peer accepted the connection and sent nothing usable in time.
    #[error("no answer in time")]
    Silent,
    /// The peer does not speak the protocol.
    #[error("{0}")]
    NotAGuest(&'static str),
    /// The listener's uid is not the expected one. Final.
    #[error("the socket belongs to uid {actual}, not to uid {expected}")]
    WrongPeer {
        /// Uid given in the endpoint.
        expected: u32,
        /// Uid of the listener.
        actual: u32,
    },
    /// The guest refused. Final.
    #[error("{0}")]
    Refused(HelloRefusal),
}

impl AttemptError {
    /// Error to return at once, if trying again is useless.
    pub(super) fn into_final(self) -> Result<LinkError, Self> {
        match self {
            Self::WrongPeer { expected, actual } => Ok(LinkError::WrongPeer { expected, actual }),
            Self::Refused(refusal) => Ok(LinkError::Refused(refusal)),
            other => Err(other),
        }
    }
}

/// Reason why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkDown {
    /// The host closed it.
    #[error("closed by the host")]
    Closed,
    /// The guest closed it.
    #[error("closed by the guest")]
    Ended,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(String),
    /// The supervisor gave up on a guest that answers no pings.
    #[error("the guest stopped answering")]
    Unresponsive,
    /// The stream could not be followed. A restarted guest shows this way too.
    #[error(transparent)]
    Frame(FrameError),
    /// The guest broke the protocol.
    #[error("the guest broke the protocol: {0}")]
    Violation(Violation),
}

/// Protocol violation by the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A payload is not of its frame's type.
    #[error("undecodable {0:?} frame")]
    Undecodable(FrameKind),
    /// A frame that only a host may send, or one out of place.
    #[error("unexpected {0:?} frame")]
    UnexpectedKind(FrameKind),
    /// A reply to, or data for, a call that is not open.
    #[error("{0:?} frame for call {1}, which is not open")]
    UnknownCall(FrameKind, u32),
    /// The reply answers another kind of request.
    #[error("reply of the wrong kind")]
    WrongReply,
    /// More data than credit was granted for.
    #[error("data beyond the credit of call {0}")]
    CreditOverrun(u32),
    /// A data frame larger than a chunk, or without its stream byte.
    #[error("data frame of {0} bytes")]
    DataSize(usize),
    /// Data of a stream that the call does not have.
    #[error("data on a stream that call {0} does not have")]
    WrongStream(u32),
    /// An event larger than [`crate::reader::MAX_EVENT_BYTES`].
    #[error("event of {0} bytes")]
    EventSize(usize),
    /// Calls that the host gave up were never closed, until no slot was left.
    #[error("given-up calls are not closed")]
    CallsUnanswered,
}

impl From<Violation> for LinkDown {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<FrameError> for LinkDown {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

/// Converts a link's failure.
pub fn link_error(error: LinkError) -> ToolError {
    let text = error.to_string();
    match error {
        LinkError::Guest(error) => guest_error(error),
        LinkError::Cancelled(_) => ToolError::new(Layer::Link, codes::CANCELLED, text),
        LinkError::Deadline(_) => ToolError::new(Layer::Link, codes::DEADLINE_EXCEEDED, text)
            .next("the guest may be hung: workspace_logs shows its console, workspace_stop ends it")
            .retryable(),
        LinkError::Down(_) => ToolError::new(Layer::Link, codes::LINK_LOST, text)
            .next("whether it took effect is not known: look before trying again")
            .retryable(),
        LinkError::Request(_) => ToolError::new(Layer::Link, codes::TOO_LARGE, text)
            .next("send less at once: commands and environments fit 1 MiB together"),
        LinkError::Sink(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            ToolError::new(Layer::Machine, codes::HOST_DISK_FULL, text)
                .next("free space on the host")
        }
        LinkError::Source(_) | LinkError::Sink(_) | LinkError::SourceSize { .. } => {
            ToolError::new(Layer::Machine, codes::HOST_FILE_FAILED, text)
        }
        LinkError::Refused(_) | LinkError::WrongPeer { .. } => {
            ToolError::new(Layer::Link, codes::LINK_REFUSED, text)
                .next("stop and start the workspace; it was made by another daemon or image")
        }
        LinkError::Unreachable { .. } => {
            ToolError::new(Layer::Link, codes::GUEST_UNREACHABLE, text).retryable()
        }
        LinkError::Miscounted { .. } => ToolError::new(Layer::Link, codes::GUEST_MISBEHAVES, text),
    }
}

/// A guest's error code as callers see it.
pub fn guest_code(code: GuestCode) -> &'static ErrorCode {
    match code {
        GuestCode::NotFound => codes::NOT_FOUND,
        GuestCode::PermissionDenied => codes::PERMISSION_DENIED,
        GuestCode::NotADirectory => codes::NOT_A_DIRECTORY,
        GuestCode::IsADirectory => codes::IS_A_DIRECTORY,
        GuestCode::NoSpace => codes::GUEST_DISK_FULL,
        GuestCode::TooLarge => codes::TOO_LARGE,
        GuestCode::Invalid => codes::INVALID_INPUT,
        GuestCode::Busy => codes::GUEST_BUSY,
        GuestCode::UnknownJob => codes::UNKNOWN_JOB,
        GuestCode::JobConflict => codes::JOB_CONFLICT,
        GuestCode::Cancelled => codes::CANCELLED,
        GuestCode::NoMatch => codes::NO_MATCH,
        GuestCode::NotUtf8 => codes::NOT_UTF8,
        GuestCode::CannotStart => codes::CANNOT_START,
        GuestCode::Io => codes::GUEST_IO,
        GuestCode::Internal => codes::GUEST_INTERNAL,
        GuestCode::Unsupported => codes::GUEST_UNSUPPORTED,
        GuestCode::UnknownTask => codes::UNKNOWN_TASK,
        GuestCode::InputClosed => codes::INPUT_CLOSED,
        GuestCode::UnknownUser => codes::USER_UNKNOWN,
        GuestCode::UnknownWatch => codes::WATCH_UNKNOWN,
        GuestCode::PortClosed => codes::PORT_CLOSED,
        GuestCode::PortTaken => codes::GUEST_PORT_TAKEN,
        GuestCode::UnknownRun => codes::EFFECT_UNKNOWN,
    }
}

fn guest_error(error: GuestError) -> ToolError {
    let code = guest_code(error.code);
    // A guest's message is untrusted text: bounded here.
    let message: String = error.message.chars().take(2_000).collect();
    let known = ToolError::new(Layer::Guest, code, message);
    match error.code {
        GuestCode::UnknownRun => ToolError::effect_unknown(Layer::Guest),
        GuestCode::Busy => known.retry_after(Duration::from_secs(1)),
        GuestCode::NotUtf8 => known.next("use file_transfer for files that are not text"),
        GuestCode::NoSpace => {
            known.next("free space in the workspace, or make one with a larger disk_gb")
        }
        GuestCode::UnknownUser => known.next("`root` is in every image; see /etc/passwd in it"),
        GuestCode::NoMatch => {
            known.next("read the file and give old_string exactly as it stands there")
        }
        _ => known,
    }
}
