//! Recovery of a workspace whose actor, or whose daemon, was gone.
//!
//! Acknowledged changes are made true again; others are undone. A machine that runs is attached,
//! never killed first.

use std::time::{Duration, Instant};

use hivekeep_kernel::ToolError;
use hivekeep_machine::{MachineHandle, ProcessId, ReattachError, host_disk_full};
use serde_json::json;

use crate::{
    activity::Activity,
    handle::WorkspaceHandle,
    ledger::{DiskChange, MachineFact},
    lifecycle::stop::undo,
    link_state::{self, LinkState},
    machine::{
        bring_up::settle_change,
        identity::{self, configure},
        take_down,
    },
    messages::{LifecycleMsg, MachineMsg},
    network::lease,
    phase::{Phase, Want},
    records::{ParkPlan, Planned, Record, StopHow},
    snapshots::DiskLayers,
    state::Workspace,
};

/// Pause between two attempts to reach a machine that does not answer; each attempt waits itself too.
const ASK_AGAIN_IN: Duration = Duration::from_millis(500);
/// Same pause, for a machine that was given up for the time being.
const ASK_LEFT_EVERY: Duration = Duration::from_secs(5);

/// Recovers the workspace; called once, at the start of each incarnation.
pub(super) fn recover(state: &mut Workspace) {
    if state.ledger.destroying {
        return undo(state, "workspace.destroyed");
    }
    if let Some((code, message)) = &state.ledger.failed {
        state.status.reason = Some(format!("{code}: {message}"));
        return state.set_phase(Phase::Failed);
    }
    if !state.ledger.created {
        // The very first incarnation of a new workspace waits for its `Create`.
        return match (&state.ledger.machine, state.handle.shared.take_fresh(state.handle.id)) {
            (MachineFact::Stopped, true) => state.set_phase(Phase::Creating),
            _ => undo(state, "workspace.create_undone"),
        };
    }
    let change = state.ledger.change.clone();
    let disk = state.ledger.disk.clone();
    match state.ledger.machine.clone() {
        // A change that was cut short is settled by the next start.
        MachineFact::Stopped => {
            state.set_phase(state.at_rest());
            if state.ledger.parked.is_some() {
                let workspace = state.handle.clone();
                let told = async move { lease::is_parked(&workspace).await };
                let _detached = state.ops.spawn(told);
            }
            end_parked(state);
        }
        MachineFact::Crashed { reason } => {
            state.status.reason = Some(reason);
            state.set_phase(Phase::Crashed);
        }
        MachineFact::Starting => {
            state.set_phase(Phase::Stopping);
            spawn_recovery(state, abandon_start);
        }
        MachineFact::Launched { handle, stopping: true, .. } => {
            state.set_phase(Phase::Stopping);
            spawn_recovery(state, |workspace, plan| async move {
                take_down::stop(&workspace, &plan, Some(&handle), &LinkState::Absent)
                    .await
                    .map(drop)
            });
        }
        // A machine that was about to be woken has not gone on.
        MachineFact::Launched { .. } if state.ledger.parked.is_some() => {
            state.set_phase(Phase::Stopping);
            spawn_recovery(state, abandon_start);
        }
        MachineFact::Launched { handle, up, .. } => {
            let halted = StandsStill { parking: state.ledger.parking, up };
            state.status.activity = Activity::Reattaching;
            state.set_phase(Phase::Starting);
            spawn_recovery(state, |workspace, plan| async move {
                let change = change.map(|change| (change, disk));
                let boot = Duration::from_secs(workspace.shared.options.boot_timeout_secs);
                match found(&workspace, &plan, &handle, boot).await? {
                    Found::There => take_up(workspace, plan, handle, change, halted).await,
                    Found::Gone(gone) => crashed(workspace, plan, gone).await,
                    Found::Silent(reason) => leave_alone(workspace, plan, handle, reason).await,
                    Found::Unwanted => Ok(()),
                }
            });
        }
    }
}

/// Ends the machine of a park that was cut short after its memory was durable.
fn end_parked(state: &Workspace) {
    let left = state.ledger.parked.as_ref().and_then(|parked| parked.left.clone());
    let Some(left) = left else { return };
    spawn_recovery(state, |workspace, plan| async move {
        let driver = workspace.shared.driver(plan.spec.isolation)?;
        driver.kill(&left).await?;
        driver.release(&take_down::machine_plan(&workspace, &plan)?).await?;
        workspace.note(Record::ParkEnded).await
    });
}

/// Takes up a machine that was left for not answering, unless its end was ordered meanwhile.
pub(super) fn answers(state: &mut Workspace, process: ProcessId) {
    let recorded = state.ledger.handle().map(|handle| handle.process);
    let left = state.machine.watched.is_none() && recorded == Some(process);
    if !left || state.status.phase.on(Want::Reattach).is_err() {
        return;
    }
    if state.on(Want::Reattach).is_ok() {
        state.status.reason = None;
        return recover(state);
    }
    // Other work on the workspace ends first.
    let actor = state.me.address.clone();
    let _detached = state.me.workers.spawn(async move {
        tokio::time::sleep(ASK_AGAIN_IN).await;
        let _gone = actor.send(LifecycleMsg::Answers(process).into());
    });
}

fn spawn_recovery<F>(state: &Workspace, work: impl FnOnce(WorkspaceHandle, Planned) -> F)
where
    F: Future<Output = Result<(), ToolError>> + Send + 'static,
{
    let work = work(state.handle.clone(), state.ledger.plan.clone());
    let workspace = state.handle.clone();
    let _detached = state.ops.spawn(async move {
        if let Err(error) = work.await {
            tracing::error!(workspace = %workspace.id, %error, "recovery failed");
            workspace.settle(Phase::Crashed, Some(error.to_text()));
        }
    });
}

/// Undoes a start that was never acknowledged: its machine is ended.
async fn abandon_start(workspace: WorkspaceHandle, plan: Planned) -> Result<(), ToolError> {
    take_down::kill_machine(&workspace, &plan).await?;
    let record = Record::Stopped { at: chrono::Utc::now(), how: StopHow::Killed };
    let event = ("workspace.start_undone", json!({ "name": plan.name }));
    workspace.commit(vec![record], Some(event)).await?;
    workspace.settle(Phase::Stopped, None);
    Ok(())
}

/// Reasons why a machine that nobody paused may be halted.
#[derive(Clone, Copy)]
struct StandsStill {
    /// The park that was under way, if any.
    parking: Option<ParkPlan>,
    /// Whether the machine had come up; before that it is halted until its link is made.
    up: bool,
}

impl StandsStill {
    fn goes_on(self) -> bool {
        self.parking.map_or(!self.up, |request| !request.paused)
    }
}

/// State of a machine that outlived the daemon.
enum Found {
    /// The machine answers.
    There,
    /// The machine is not there, or its process is another's.
    Gone(ReattachError),
    /// The machine is there and did not answer for as long as a boot may take.
    Silent(String),
    /// The workspace is being removed.
    Unwanted,
}

/// Looks for a machine. A machine that does not answer may be busy, or its host: it is asked again,
/// and not ended for it.
async fn found(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    handle: &MachineHandle,
    patience: Duration,
) -> Result<Found, ToolError> {
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let until = Instant::now() + patience;
    let phase = || workspace.shared.directory.any(workspace.id).map(|card| card.phase);
    loop {
        let found = driver.reattach(handle).await;
        if phase() == Some(Phase::Destroying) {
            return Ok(Found::Unwanted);
        }
        match found {
            Ok(()) => return Ok(Found::There),
            Err(ReattachError::Silent { reason }) if Instant::now() < until => {
                tracing::debug!(workspace = %workspace.id, reason, "a machine does not answer yet");
                tokio::time::sleep(ASK_AGAIN_IN).await;
            }
            Err(ReattachError::Silent { reason }) => return Ok(Found::Silent(reason)),
            Err(gone) => return Ok(Found::Gone(gone)),
        }
    }
}

async fn crashed(
    workspace: WorkspaceHandle,
    plan: Planned,
    gone: ReattachError,
) -> Result<(), ToolError> {
    let reason = format!("the machine ended while the daemon was away: {gone}");
    take_down::kill_machine(&workspace, &plan).await?;
    let record = Record::Crashed { at: chrono::Utc::now(), reason: reason.clone() };
    let event = ("workspace.crashed", json!({ "name": plan.name, "reason": reason }));
    workspace.commit(vec![record], Some(event)).await?;
    workspace.settle(Phase::Crashed, Some(reason));
    Ok(())
}

/// Leaves a machine as it is until somebody orders its end, or it answers after all.
async fn leave_alone(
    workspace: WorkspaceHandle,
    plan: Planned,
    handle: Box<MachineHandle>,
    reason: String,
) -> Result<(), ToolError> {
    let reason = format!("the machine lives but does not answer: {reason}; it is asked again");
    tracing::warn!(workspace = %workspace.id, reason, "a machine is left as it is");
    workspace.publish("workspace.silent", json!({ "name": plan.name, "reason": reason }));
    workspace.settle(Phase::Crashed, Some(reason));
    let left = || {
        workspace
            .shared
            .directory
            .any(workspace.id)
            .is_some_and(|card| card.phase == Phase::Crashed)
    };
    // The wait lets the card show the phase `Crashed`.
    tokio::time::sleep(ASK_LEFT_EVERY).await;
    while left() {
        match found(&workspace, &plan, &handle, Duration::ZERO).await? {
            Found::Silent(_) => tokio::time::sleep(ASK_LEFT_EVERY).await,
            Found::There => {
                let _actor_gone =
                    workspace.actor.send(LifecycleMsg::Answers(handle.process).into());
                return Ok(());
            }
            // The watch on the left machine notices its end.
            Found::Gone(_) | Found::Unwanted => return Ok(()),
        }
    }
    Ok(())
}

/// Takes up a machine that outlived the daemon.
async fn take_up(
    workspace: WorkspaceHandle,
    plan: Planned,
    handle: Box<MachineHandle>,
    change: Option<(DiskChange, DiskLayers)>,
    halted: StandsStill,
) -> Result<(), ToolError> {
    let driver = workspace.shared.driver(plan.spec.isolation)?;
    let disk_full = match driver.snapshots() {
        Some(snapshots) => snapshots.is_disk_full(&handle).await?,
        None => false,
    };
    // On a disk without room the change waits for the next start.
    if let (Some((change, disk)), false) = (change, disk_full) {
        settle_change(&workspace, &plan, &change, &disk, Some(&handle)).await?;
    }
    if halted.parking.is_some() {
        // Recorded before the machine goes on, so that no daemon takes the file for its memory.
        workspace.note(Record::ParkFailed).await?;
        lease::stays_awake(&workspace, driver.as_ref(), &handle).await?;
    }
    let mut paused = driver.is_halted(&handle).await?;
    if paused && !disk_full && halted.goes_on() {
        driver.go_on(&handle).await?;
        paused = false;
    }
    let (patience, machine) = (Duration::from_secs(10), handle.clone());
    let mut link_state = workspace
        .actor
        .ask(patience, |reply| MachineMsg::Attach(handle, None, reply).into())
        .await?;
    if paused {
        // The machine is paused on purpose; its guest answers when it goes on.
        workspace.publish("workspace.reattached", json!({ "name": plan.name }));
        workspace.settle(Phase::Paused, None);
        return Ok(());
    }
    if disk_full {
        workspace.publish("workspace.reattached", json!({ "name": plan.name }));
        let error = host_disk_full();
        workspace.publish("workspace.host_disk_full", json!({ "reason": error.message }));
        workspace.settle(Phase::HostDiskFull, Some(error.to_text()));
        return Ok(());
    }
    let boot = Duration::from_secs(workspace.shared.options.boot_timeout_secs);
    let link = link_state::usable(&mut link_state, boot).await?;
    let networked = lease::verify(&workspace, &plan, &link, driver.as_ref(), &machine);
    let mounted = identity::mount(&link, &plan);
    tokio::try_join!(configure(&link, &plan, false), networked, mounted)?;
    workspace.note(Record::Up { boot_time_ms: 0, at: chrono::Utc::now() }).await?;
    workspace.publish("workspace.reattached", json!({ "name": plan.name }));
    workspace.settle(Phase::Running, None);
    Ok(())
}
