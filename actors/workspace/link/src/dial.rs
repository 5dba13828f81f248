use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    carrier::{Carrier, Connection},
    error::{AttemptError, Ending, LinkError},
    handshake::{Greeted, greet},
    options::LinkOptions,
    token::LinkToken,
};

/// Connects with retries until a guest accepts, refuses, or the deadline passes.
pub(super) async fn dial(
    carrier: &dyn Carrier,
    token: &LinkToken,
    options: &LinkOptions,
    cancel: &CancellationToken,
) -> Result<(Connection, Greeted), LinkError> {
    let deadline = Instant::now() + options.deadline();
    let mut pause = Duration::from_millis(options.retry_first_ms.max(1));
    let mut attempts = 0;
    loop {
        attempts += 1;
        let limit = deadline.min(Instant::now() + options.attempt_timeout());
        let tried = tokio::select! {
            biased;
            _ = cancel.cancelled() => return Err(LinkError::Cancelled(Ending::NotSent)),
            tried = timeout_at(limit, attempt(carrier, token, options)) => tried,
        };
        let last = match tried.unwrap_or(Err(AttemptError::Silent)) {
            Ok(greeted) => return Ok(greeted),
            Err(error) => match error.into_final() {
                Ok(fatal) => return Err(fatal),
                Err(last) => last,
            },
        };
        tracing::trace!(carrier = carrier.name(), attempts, %last, "no guest yet");
        let next = Instant::now() + pause;
        if next >= deadline {
            return Err(LinkError::Unreachable { attempts, last });
        }
        tokio::select! {
            biased;
            _ = cancel.cancelled() => return Err(LinkError::Cancelled(Ending::NotSent)),
            _ = sleep_until(next) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(options.retry_max_ms.max(1)));
    }
}

async fn attempt(
    carrier: &dyn Carrier,
    token: &LinkToken,
    options: &LinkOptions,
) -> Result<(Connection, Greeted), AttemptError> {
    let mut connection = timeout(options.dial_timeout(), carrier.connect())
        .await
        .unwrap_or(Err(AttemptError::Silent))?;
    let greeted = greet(&mut connection, token, !carrier.has_connections()).await?;
    Ok((connection, greeted))
}
