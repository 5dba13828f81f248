//! A readiness wait: the first link to a guest that boots, or the end of its console.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::Link;
use hivekeep_machine::Driver;
use tokio::sync::watch;

use crate::{codes, handle::WorkspaceHandle, link_state::LinkState, machine::take_down};

/// A boot whose guest did not answer.
pub(super) enum BootError {
    /// The machine ended by itself before its guest had answered.
    Ended(ToolError),
    /// Any other failure.
    Other(ToolError),
}

impl From<ToolError> for BootError {
    fn from(error: ToolError) -> Self {
        Self::Other(error)
    }
}

impl From<BootError> for ToolError {
    fn from(error: BootError) -> Self {
        match error {
            BootError::Ended(error) | BootError::Other(error) => error,
        }
    }
}

/// Most of the console that an error shows, in characters.
const CONSOLE_CHARS: usize = 1_000;

/// Waits until the guest answers, for `boot` at most.
///
/// # Errors
/// `boot_failed` and `boot_timeout`, with the end of the guest's console in the details.
pub(super) async fn first_link(
    workspace: &WorkspaceHandle,
    driver: &dyn Driver,
    link_state: &mut watch::Receiver<LinkState>,
    boot: Duration,
) -> Result<Link, BootError> {
    let decided = link_state.wait_for(|link_state| {
        matches!(
            link_state,
            LinkState::Up(_)
                | LinkState::Refused(_)
                | LinkState::Gone(_)
                | LinkState::Unresponsive(_)
        )
    });
    let mut ended = false;
    let error = match tokio::time::timeout(boot, decided).await {
        Ok(Ok(link_state)) => match &*link_state {
            LinkState::Up(link) | LinkState::Unresponsive(link) => return Ok(link.clone()),
            other => {
                ended = matches!(other, LinkState::Gone(_));
                let message = format!("the guest did not come up: {}", other.word());
                ToolError::new(Layer::Machine, codes::BOOT_FAILED, message)
                    .next("workspace_logs shows the console and the hypervisor's messages")
            }
        },
        Ok(Err(_)) => {
            return Err(ToolError::internal("the workspace's actor ended in the boot").into());
        }
        Err(_) => {
            let message = format!("no answer from the guest within {} s", boot.as_secs());
            ToolError::new(Layer::Machine, codes::BOOT_TIMEOUT, message)
                .next(
                    "workspace_logs shows the console; workspace.boot_timeout_secs sets the limit",
                )
                .retryable()
        }
    };
    let error = match driver.logs(&take_down::folders(workspace)).await {
        Ok(logs) => error.detail("console_end", end(&logs.console)),
        // The failure of the boot is what counts; workspace_logs says why its logs are unreadable.
        Err(_) => error,
    };
    Err(if ended { BootError::Ended(error) } else { BootError::Other(error) })
}

/// The last lines of a console. A guest prints what it likes: clients escape it.
fn end(console: &str) -> String {
    let skipped = console.chars().count().saturating_sub(CONSOLE_CHARS);
    let end: String = console.chars().skip(skipped).collect();
    match end.split_once('\n') {
        Some((_cut, whole)) if skipped > 0 && !whole.is_empty() => whole.to_owned(),
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_console_is_of_whole_lines_where_it_has_some() {
        assert_eq!(end("booting\nfailed\n"), "booting\nfailed\n");
        let long = format!("{}\nlast\n", "x".repeat(CONSOLE_CHARS));
        assert_eq!(end(&long), "last\n");
        assert_eq!(end(&"é".repeat(2 * CONSOLE_CHARS)).chars().count(), CONSOLE_CHARS);
    }
}
