//! Whether the guest can be reached now, as those see it who want to.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_protocol::{GuestCode, GuestError};
use tokio::sync::watch;

use crate::link::{Link, LinkError, Wait};

/// The way into the guest.
#[derive(Debug, Clone)]
pub enum Line {
    /// There is no machine.
    Absent,
    /// A link is being made.
    Connecting(String),
    /// Calls can be made.
    Up(Link),
    /// The link stands and the guest answers no pings.
    Unresponsive(Link),
    /// The guest will not serve this daemon.
    Refused(String),
    /// The machine ended.
    Gone(String),
}

impl Line {
    /// For people.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Absent => "absent".to_owned(),
            Self::Connecting(why) => format!("connecting ({why})"),
            Self::Up(_) => "up".to_owned(),
            Self::Unresponsive(_) => "unresponsive".to_owned(),
            Self::Refused(why) => format!("refused ({why})"),
            Self::Gone(why) => format!("gone ({why})"),
        }
    }
}

/// Waits for a link to make a call on, while one is being made, at most `patience`.
///
/// # Errors
/// `guest_unreachable`, with what stands in the way.
pub(crate) async fn usable(
    line: &mut watch::Receiver<Line>,
    patience: Duration,
) -> Result<Link, ToolError> {
    let settled = line.wait_for(|line| !matches!(line, Line::Connecting(_) | Line::Absent));
    // What stands there after the wait decides, however the wait ended.
    let _over = tokio::time::timeout(patience, settled).await.is_ok();
    let now = line.borrow().clone();
    match now {
        Line::Up(link) => Ok(link),
        // The call is tried: its own deadline decides, not a ping's.
        Line::Unresponsive(link) => Ok(link),
        other => {
            let message = format!("the guest cannot be reached: {}", other.word());
            Err(ToolError::new(Layer::Link, "guest_unreachable", message)
                .next("workspace_info shows the link; workspace_logs the guest's console")
                .retry_after(Duration::from_secs(1)))
        }
    }
}

/// Until when a call waits for the guest.
pub(crate) fn wait(cx: &CallCx) -> Wait {
    Wait { deadline: cx.deadline, cancel: cx.cancel.clone() }
}

/// A link's failure as a caller sees it.
pub(crate) fn link_error(error: LinkError) -> ToolError {
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
pub(crate) fn guest_code(code: GuestCode) -> &'static str {
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
