//! `workspace_park`: memory and devices go to the disk, the machine ends, its memory is given back.
//!
//! ```text
//! ParkWanted ─► stopped and saved ─► Parked ─► the machine is ended ─► ParkEnded
//!      └────────── failed, or found by the next daemon ─► ParkFailed ─► it goes on
//! ```
//! Up to [`Record::Parked`] the machine counts and its memory file is void. From then on the file
//! counts, and the machine, which is never resumed, is ended wherever it is found.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{CallCx, Reply, SessionId, SnapshotId, ToolError, fault_point};
use hivekeep_link::{CallTerms, Link};
use hivekeep_machine::{Driver, MachineHandle, MachinePlan};
use hivekeep_protocol::{TaskList, TaskListReply};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    activity::Activity,
    handle::WorkspaceHandle,
    machine::{boot::park_request, identity::has_no_volumes, images::images, take_down},
    messages::ParkMsg,
    network::lease,
    parking::{Parked, WorkspacePark, standstill, wake},
    phase::{Phase, Want, cannot_park, no_snapshots},
    records::{ParkPlan, Planned, Record},
    snapshots::{Artifact, files},
    state::Workspace,
};

/// Time for a guest to say which tasks it has.
const TASKS_PATIENCE: Duration = Duration::from_secs(5);

/// `workspace_park`.
///
/// # Errors
/// When the workspace does not run, other work must end first, or its kind cannot be parked.
pub(crate) fn park(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspacePark,
) -> Result<Reply<Parked>, ToolError> {
    Ok(Reply::later(begin_park(state)?))
}

/// Parks the workspace, to the end whether or not anybody waits.
pub(crate) fn begin_park(
    state: &mut Workspace,
) -> Result<impl Future<Output = Result<Parked, ToolError>> + Send + use<>, ToolError> {
    let plan = state.ledger.plan.clone();
    let driver = state.handle.shared.driver(plan.spec.isolation)?;
    driver.snapshots().ok_or_else(cannot_park)?;
    has_no_volumes(
        &state.ledger.plan,
        "a machine with volumes cannot be parked: QEMU cannot save its devices",
    )?;
    state.on(Want::Park)?;
    let handle = state.ledger.handle().cloned().ok_or_else(|| state.status.phase.busy())?;
    state.handle.shared.daemon.room.admit(&state.handle.shared.folders.memories)?;
    // The memory that the machine began with, while its file is still held.
    let began = plan.fork.as_ref().filter(|fork| fork.memory.is_some());
    let counts = state.handle.shared.ref_counts.clone();
    let base = began.map(|fork| fork.snapshot);
    let base = base.filter(|base| counts.take_held(Artifact::Memory(*base)));
    let paused = state.status.phase == Phase::Paused;
    let park_plan = ParkPlan { park: SnapshotId::new(), base, paused };
    let mut own = take_down::machine_plan(&state.handle, &plan)?;
    own.disk = take_down::disk_files(&state.handle, &state.ledger.disk);
    let work = Parking {
        workspace: state.handle.clone(),
        disk_base: state.ledger.base.clone(),
        owner: state.ledger.owner,
        plan,
        handle,
        own,
        park_plan,
    };
    state.status.activity = Activity::Parking;
    let (actor, shared) = (state.me.address.clone(), state.handle.shared.clone());
    Ok(state.to_its_end(async move {
        let parked = work.park(driver.as_ref()).await;
        // The park's own record holds the base by now, unless the workspace was destroyed meanwhile.
        let free = counts.release(base.map(Artifact::Memory));
        files::remove(&shared.folders, free).await;
        let _actor_gone = actor.send(ParkMsg::Ended.into());
        parked
    }))
}

pub(crate) fn handle(state: &mut Workspace, news: ParkMsg) {
    match news {
        ParkMsg::Ended => wake::park_ended(state),
        ParkMsg::StillWanted(reply) => drop(reply.send(state.sleeping.is_awaited())),
        ParkMsg::Woken(outcome) => wake::woken(state, outcome),
        ParkMsg::LookIdle => look_idle(state),
        ParkMsg::ParkIdle(asked_at) => park_idle(state, asked_at),
        ParkMsg::StandStill(owner, wanted, reply) => standstill::ask(state, owner, wanted, reply),
        ParkMsg::Turned(error) => standstill::turned(state, error),
    }
}

/// Asks the guest of an idle workspace whether it has tasks.
fn look_idle(state: &mut Workspace) {
    let Some(secs) = state.parks_after_secs() else { return };
    let Some(link) = is_idle(state, secs) else { return };
    // The idle time restarts: a workspace that cannot be parked now is checked again after it.
    state.sleeping.used_at = Instant::now();
    let (actor, asked_at) = (state.me.address.clone(), state.sleeping.used_at);
    let _detached = state.me.workers.spawn(async move {
        let listed = link.ask(TaskList, CallTerms::at_most(TASKS_PATIENCE)).await;
        // A guest that cannot say which tasks it has is left alone.
        let free = |all: &TaskListReply| {
            all.queued.is_empty() && all.running.is_empty() && all.results == 0
        };
        if listed.as_ref().is_ok_and(free) {
            let _gone = actor.send(ParkMsg::ParkIdle(asked_at).into());
        }
    });
}

/// Parks an idle workspace without tasks, unless something was wanted of it since `asked_at`.
fn park_idle(state: &mut Workspace, asked_at: Instant) {
    if state.sleeping.used_at != asked_at || is_idle(state, 0).is_none() {
        return;
    }
    match begin_park(state) {
        Ok(work) => {
            let workspace = state.handle.clone();
            let _detached = state.ops.spawn(async move {
                if let Err(error) = work.await {
                    tracing::warn!(workspace = %workspace.id, %error, "an idle machine is not parked");
                }
            });
        }
        Err(error) => {
            tracing::debug!(workspace = %state.handle.id, %error, "an idle machine is not parked");
        }
    }
}

/// Link to a guest that was not used for so many seconds and runs no job.
fn is_idle(state: &mut Workspace, secs: u64) -> Option<Link> {
    let link = state.link.up()?;
    let works = state.ops.running() > 0
        || link.calls_in_flight() > 0
        || !state.ledger.jobs.is_empty()
        || state.status.phase != Phase::Running;
    if works {
        state.sleeping.used_at = Instant::now();
    }
    let idle = state.sleeping.used_at.elapsed() >= Duration::from_secs(secs);
    (!works && idle).then_some(link)
}

/// Work of one park.
struct Parking {
    workspace: WorkspaceHandle,
    plan: Planned,
    handle: MachineHandle,
    own: MachinePlan,
    disk_base: Option<std::path::PathBuf>,
    owner: Option<SessionId>,
    park_plan: ParkPlan,
}

impl Parking {
    async fn park(mut self, driver: &dyn Driver) -> Result<Parked, ToolError> {
        let cx = self.workspace.internal_cx();
        self.own.images = images(&self.workspace, &self.plan, self.disk_base.take(), &cx).await?.0;
        let begun = Instant::now();
        self.workspace.note(Record::ParkWanted(self.park_plan)).await?;
        fault_point!("park.before_save");
        let snapshots = driver.snapshots().ok_or_else(no_snapshots)?;
        let request = park_request(&self.workspace, self.park_plan);
        // The network comes first: a connection during the save would reach a halted machine.
        if let Err(error) = lease::falls_asleep(&self.workspace, driver, &self.handle).await {
            return Err(self.go_on(driver, error).await);
        }
        let saved = match snapshots.park(&self.handle, &self.own, &request).await {
            Ok(saved) => saved,
            Err(error) => return Err(self.go_on(driver, error.into()).await),
        };
        fault_point!("park.after_save");
        let memory_bytes = saved.ram_bytes + saved.device_bytes;
        let record = Record::Parked { park: self.park_plan.park, memory_bytes, at: Utc::now() };
        let event =
            ("workspace.parked", json!({ "name": self.plan.name, "memory_bytes": memory_bytes }));
        if let Err(error) = self.workspace.commit(vec![record], Some(event)).await {
            return Err(self.go_on(driver, error).await);
        }
        let recorded = self.workspace.shared.logs.state(self.workspace.id);
        let parked = recorded.as_ref().and_then(|ledger| ledger.parked.as_ref());
        if parked.is_none_or(|parked| parked.plan != self.park_plan) {
            return Err(ToolError::internal("it was stopped, or taken up anew, meanwhile"));
        }
        fault_point!("park.after_parked");
        self.end(driver).await;
        Ok(Parked {
            workspace_id: self.plan.id,
            name: self.plan.name.to_string(),
            state: Phase::Parked,
            memory_bytes,
            took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Ends the machine that was parked, and gives its memory back to the owner's quota.
    async fn end(&self, driver: &dyn Driver) {
        if let Some(owner) = self.owner {
            self.workspace.shared.daemon.sessions.release(owner, self.plan.spec.memory());
        }
        let ended = async {
            take_down::kill_machine(&self.workspace, &self.plan).await?;
            driver.kill(&self.handle).await?;
            fault_point!("park.after_kill");
            self.workspace.note(Record::ParkEnded).await
        };
        if let Err(error) = ended.await {
            // The record names the machine; the next wake ends it first.
            tracing::error!(workspace = %self.workspace.id, %error, "a parked machine's process is left");
        }
    }

    /// Lets a machine that was not saved go on; the error says so if it does not.
    async fn go_on(&self, driver: &dyn Driver, error: ToolError) -> ToolError {
        let resumed = async {
            // The record comes first, so that no daemon takes the file for the machine's memory.
            self.workspace.note(Record::ParkFailed).await?;
            if !self.park_plan.paused {
                driver.snapshots().ok_or_else(no_snapshots)?.resume(&self.handle).await?;
            }
            lease::stays_awake(&self.workspace, driver, &self.handle).await
        };
        match resumed.await {
            Ok(()) => error,
            Err(left) => error.detail("not_resumed", left.to_text()),
        }
    }
}
