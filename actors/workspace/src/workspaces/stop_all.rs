//! Stopping every machine, with those that are still on their way.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use hivekeep_kernel::{Address, RateClass, ToolCall};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    directory::WorkspaceDirectory,
    messages::LifecycleMsg,
    phase::{MachineProcess, Phase},
    pool,
    shared::Shared,
};

/// For machines that are on their way to run, and then for one to stop. Whoever waits for all has
/// more than both.
const ARRIVAL: Duration = Duration::from_secs(45);
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Whether a call would make machines while the daemon is being stopped.
pub(super) fn too_late(shared: &Shared, call: &ToolCall) -> bool {
    call.tool.class(&call.args) == RateClass::Create && shared.may_start().is_err()
}

/// Tells the pool when the daemon begins to stop: what it makes is refused from then on.
pub(super) async fn halt(closing: CancellationToken, pool: Address<pool::Msg>) {
    closing.cancelled().await;
    let _pool_is_down = pool.send(pool::Msg::Halt);
}

/// Stops what runs, and what is being made or started as soon as it runs: otherwise a machine that
/// is launched a moment later would outlive the daemon. Each is told once.
pub(super) async fn stop_all(directory: &WorkspaceDirectory) {
    let until = Instant::now() + ARRIVAL;
    let mut told = HashSet::new();
    loop {
        let late = Instant::now() >= until;
        let mut moving = Vec::new();
        let mut stops = Vec::new();
        for card in directory.all() {
            if told.contains(&card.id) {
                continue;
            }
            if !late && matches!(card.phase, Phase::Creating | Phase::Starting) {
                moving.push(card.name);
            } else if card.phase == Phase::Running || card.process != MachineProcess::None {
                told.insert(card.id);
                stops.push(card.address);
            } else if matches!(card.phase, Phase::Creating | Phase::Starting) {
                tracing::warn!(workspace = %card.name, "is still being made: it is not stopped");
            }
        }
        let asked =
            stops.iter().map(|one| one.ask(PATIENCE, |done| LifecycleMsg::Stop(done).into()));
        for outcome in join_all(asked).await {
            if let Err(error) = outcome {
                tracing::warn!(%error, "a workspace did not stop");
            }
        }
        if moving.is_empty() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}
