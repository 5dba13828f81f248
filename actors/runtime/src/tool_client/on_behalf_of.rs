//! The principal of a call: the session it is made for, its deadline and its cancellation.

use std::time::Duration;

use hivekeep_kernel::{CallCx, SessionId, ToolError, ports::Reservation};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Pause between two attempts, when the error does not say how long to wait; the longest is four times that.
const PAUSE: Duration = Duration::from_millis(250);

/// The session that something is done for, and until when.
#[derive(Debug, Clone)]
pub struct OnBehalfOf {
    /// The session, which may have ended: what it left half made can still be undone.
    pub session: SessionId,
    /// Time after which no attempt begins.
    pub deadline: Instant,
    /// Stops calls that run, and further attempts.
    pub cancel: CancellationToken,
    /// Room that was reserved for what is made.
    pub reserved: Option<Reservation>,
}

impl OnBehalfOf {
    /// For the session of a call, as part of it.
    pub fn call(cx: &CallCx) -> Self {
        Self {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            reserved: cx.reserved.clone(),
        }
    }

    /// For a session, whatever became of the call that made it necessary.
    pub fn own(session: SessionId, patience: Duration) -> Self {
        let deadline = Instant::now() + patience;
        Self { session, deadline, cancel: CancellationToken::new(), reserved: None }
    }

    /// Waits before another attempt.
    ///
    /// # Errors
    /// The error itself, when it is not a passing one, or no time is left, or it was cancelled.
    pub async fn wait_or(&self, error: ToolError, passing: bool) -> Result<(), ToolError> {
        let pause = error.retry_after_ms.map_or(PAUSE, Duration::from_millis).min(4 * PAUSE);
        if !passing || self.cancel.is_cancelled() || Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        tokio::select! {
            () = self.cancel.cancelled() => Err(error),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}
