//! The daemon as a service. Signals: the first asks for an ordered stop, the second ends at once. Messages to a service
//! manager (sd_notify): without one, nothing happens.

use std::time::Duration;

use hivekeep_door_server::StopOrder;
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

/// Exit code after a second signal: 128 + SIGTERM, as shells have it.
const EXIT_AT_ONCE: i32 = 143;

/// Watches for SIGTERM and SIGINT from now on.
///
/// # Errors
/// When the handlers cannot be installed.
pub(super) fn watch_signals(stop: watch::Sender<StopOrder>) -> std::io::Result<()> {
    let (terminate, interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A client that is gone must not end the daemon: SIGHUP of a lost terminal
    // is taken and ignored.
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move { while hangup.recv().await.is_some() {} });
    tokio::spawn(run(terminate, interrupt, stop));
    Ok(())
}

async fn run(mut terminate: Signal, mut interrupt: Signal, stop: watch::Sender<StopOrder>) {
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::info!(signal = name, "stopping in order; a second signal ends at once");
    stop.send_replace(StopOrder::Stop { workspaces: None });
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::warn!(signal = name, "ending at once");
    // Acknowledged effects are on the disk already; nothing here needs an end.
    std::process::exit(EXIT_AT_ONCE);
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

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
