//! Messages to a service manager (sd_notify). Without one, nothing happens.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

/// The daemon serves.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// An ordered stop began and may take this long.
pub(super) fn stopping(at_most: Duration) {
    let micros = u32::try_from(at_most.as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("stopping"),
    ]);
}

/// Shows signs of life until `end`, twice as often as the service manager asks,
/// but only while `alive` says so: a daemon whose tree hangs is restarted.
pub(super) async fn watchdog<F>(end: CancellationToken, alive: impl Fn() -> F)
where
    F: Future<Output = bool>,
{
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval(limit / 2);
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            _ = tick.tick() => {}
        }
        match tokio::time::timeout(limit / 2, alive()).await {
            Ok(true) => tell(&[NotifyState::Watchdog]),
            Ok(false) | Err(_) => tracing::error!("no sign of life for the service manager"),
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
