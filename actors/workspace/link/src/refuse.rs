//! A link's and a guest's failures as callers see them.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_protocol::{GuestCode, GuestError};

use super::LinkError;

/// A link's failure as a caller sees it.
pub fn link_error(error: LinkError) -> ToolError {
    let text = error.to_string();
    match error {
        LinkError::Guest(error) => guest_error(error),
        LinkError::Cancelled(_) => ToolError::new(Layer::Link, "cancelled", text),
        LinkError::Deadline(_) => ToolError::new(Layer::Link, "deadline_exceeded", text)
            .next("the guest may be hung: workspace_logs shows its console, workspace_stop ends it")
            .retryable(),
        LinkError::Down(_) => ToolError::new(Layer::Link, "link_lost", text)
            .next("whether it took effect is not known: look before trying again")
            .retryable(),
        LinkError::Request(_) => ToolError::new(Layer::Link, "too_large", text)
            .next("send less at once: commands and environments fit 1 MiB together"),
        LinkError::Sink(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            ToolError::new(Layer::Machine, "host_disk_full", text).next("free space on the host")
        }
        LinkError::Source(_) | LinkError::Sink(_) | LinkError::SourceSize { .. } => {
            ToolError::new(Layer::Machine, "host_file_failed", text)
        }
        LinkError::Refused(_) | LinkError::WrongPeer { .. } => {
            ToolError::new(Layer::Link, "link_refused", text)
                .next("stop and start the workspace; it was made by another daemon or image")
        }
        LinkError::Unreachable { .. } => {
            ToolError::new(Layer::Link, "guest_unreachable", text).retryable()
        }
        LinkError::Miscounted { .. } => ToolError::new(Layer::Link, "guest_misbehaves", text),
    }
}

/// A guest's error code as callers see it.
pub fn guest_code(code: GuestCode) -> &'static str {
    match code {
        GuestCode::NotFound => "not_found",
        GuestCode::PermissionDenied => "permission_denied",
        GuestCode::NotADirectory => "not_a_directory",
        GuestCode::IsADirectory => "is_a_directory",
        GuestCode::NoSpace => "guest_disk_full",
        GuestCode::TooLarge => "too_large",
        GuestCode::Invalid => "invalid_input",
        GuestCode::Busy => "guest_busy",
        GuestCode::UnknownJob => "unknown_job",
        GuestCode::JobConflict => "job_conflict",
        GuestCode::Cancelled => "cancelled",
        GuestCode::NoMatch => "no_match",
        GuestCode::NotUtf8 => "not_utf8",
        GuestCode::CannotStart => "cannot_start",
        GuestCode::Io => "guest_io",
        GuestCode::Internal => "guest_internal",
        GuestCode::Unsupported => "guest_unsupported",
        GuestCode::UnknownTask => "unknown_task",
    }
}

fn guest_error(error: GuestError) -> ToolError {
    let code = guest_code(error.code);
    // The guest's words are untrusted text: bounded here.
    let message: String = error.message.chars().take(2_000).collect();
    let known = ToolError::new(Layer::Guest, code, message);
    match error.code {
        GuestCode::Busy => known.retry_after(Duration::from_secs(1)),
        GuestCode::NotUtf8 => known.next("use file_transfer for files that are not text"),
        GuestCode::NoSpace => {
            known.next("free space in the workspace, or make one with a larger disk_gb")
        }
        GuestCode::NoMatch => {
            known.next("read the file and give old_string exactly as it stands there")
        }
        _ => known,
    }
}
