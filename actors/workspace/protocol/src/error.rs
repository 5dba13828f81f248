use serde::{Deserialize, Serialize};

/// Error with which the guest refuses or fails a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GuestError {
    /// Code that a caller can act on.
    pub code: GuestCode,
    /// Message for people; names the path, job, task or limit concerned.
    pub message: String,
}

/// Error codes of the guest. New ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GuestCode {
    /// No such file or directory.
    NotFound,
    /// The guest's kernel refused access.
    PermissionDenied,
    /// A directory was expected.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// The guest's disk is full.
    NoSpace,
    /// A limit of [`crate::limits`] was exceeded.
    TooLarge,
    /// The request makes no sense (empty path, bad variable name).
    Invalid,
    /// Too many calls in flight, or too many jobs.
    Busy,
    /// No job of that id.
    UnknownJob,
    /// The job id is taken by another command.
    JobConflict,
    /// The call was cancelled by the host.
    Cancelled,
    /// `old_string` does not occur in the file.
    NoMatch,
    /// The file is not UTF-8.
    NotUtf8,
    /// The program could not be started.
    CannotStart,
    /// Any other I/O error.
    Io,
    /// A defect of the guest daemon; the call alone failed.
    Internal,
    /// The request's kind is not known to this guest.
    Unsupported,
    /// No task of that id.
    UnknownTask,
    /// The process reads no input: it has ended, or its input is closed.
    InputClosed,
    /// The machine has no user or group of that name or number.
    UnknownUser,
    /// No watch of that id: it was ended, or its daemon was.
    UnknownWatch,
    /// Nothing takes connections on the port.
    PortClosed,
}

impl GuestError {
    /// Makes an error from its parts.
    pub fn new(code: GuestCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
