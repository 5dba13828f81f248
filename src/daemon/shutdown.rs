//! Signals: the first asks for an ordered stop, the second ends at once.

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::doors::StopOrder;

/// Exit code after a second signal: 128 + SIGTERM, as shells have it.
const EXIT_AT_ONCE: i32 = 143;

/// Watches for SIGTERM and SIGINT from now on.
///
/// # Errors
/// When the handlers cannot be installed.
pub(super) fn watch(stop: watch::Sender<StopOrder>) -> std::io::Result<()> {
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
