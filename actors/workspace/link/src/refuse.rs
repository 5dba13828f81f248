//! Conversion of link and guest errors to [`hivekeep_kernel::ToolError`].

use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_protocol::{GuestCode, GuestError};

use super::LinkError;
use crate::codes;

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
    }
}

fn guest_error(error: GuestError) -> ToolError {
    let code = guest_code(error.code);
    // A guest's message is untrusted text: bounded here.
    let message: String = error.message.chars().take(2_000).collect();
    let known = ToolError::new(Layer::Guest, code, message);
    match error.code {
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
