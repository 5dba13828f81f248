//! Starts of the machine: the first one, `workspace_start`, and restarts by policy.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point};
use hivekeep_ports::AttachedVolume;
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    activity::Activity,
    handle::WorkspaceHandle,
    lifecycle::api::{WorkspaceStart, WorkspaceStarted},
    machine::{
        boot::{Start, StartMemory, bring_up},
        bring_up::{bring_up_again, fail_creation, fail_start},
    },
    messages::LifecycleMsg,
    parking::wake,
    phase::{Phase, Want},
    records::{Planned, Record, Role},
    state::Workspace,
};

/// Pause before a refused restart is tried again.
const RESTART_AGAIN_IN: Duration = Duration::from_millis(500);

/// Makes the machine for the first time; the answer is the boot time in ms.
pub(crate) fn create(
    state: &mut Workspace,
    cx: CallCx,
    reply: oneshot::Sender<Result<u64, ToolError>>,
) {
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let fork = plan.fork.as_ref();
    let memory = fork.and_then(|fork| Some(StartMemory::Copy(fork.snapshot, fork.memory.clone()?)));
    let start = Start { memory, planned: true, ..Start::of(&state.ledger) };
    let span = cx.span.clone();
    let work = async move {
        let made = cx.guard(bring_up(&workspace, &plan, start, &cx)).await;
        let outcome = match made {
            Ok(up) => {
                fault_point!("create.before_created");
                let boot_time_ms = up.boot_time_ms;
                let kind = match plan.pool.as_ref().map(|pooled| pooled.role) {
                    None => "workspace.created",
                    Some(Role::Member) => "pool.made",
                    Some(Role::Template) => "pool.template_booted",
                };
                let event = (kind, json!({ "name": plan.name, "boot_time_ms": boot_time_ms }));
                let records = vec![up.record(), Record::Created { boot_time_ms }];
                match workspace.commit(records, Some(event)).await {
                    Ok(()) => {
                        workspace.settle(Phase::Running, None);
                        Ok(boot_time_ms)
                    }
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        fault_point!("create.after_created");
        if let Err(error) = &outcome {
            fail_creation(&workspace, &plan, error).await;
        }
        let _caller_gone = reply.send(outcome);
    };
    let _detached = state.ops.spawn(tracing::Instrument::instrument(work, span));
}

/// `workspace_start`.
///
/// # Errors
/// When the workspace runs or other work must end first; `daemon_stopping`.
pub(super) fn start_again(
    state: &mut Workspace,
    cx: &CallCx,
    input: WorkspaceStart,
) -> Result<Reply<WorkspaceStarted>, ToolError> {
    if state.status.phase == Phase::Crashed && state.ledger.parked.is_some() {
        // The next wake ends what a failed wake left.
        state.set_phase(Phase::Parked);
    }
    let sleeps = state.status.phase == Phase::Parked || state.status.activity == Activity::Waking;
    if sleeps && !input.from_disk {
        return start_parked(state, &input);
    }
    start_from_disk(state, cx, input)
}

fn start_from_disk(
    state: &mut Workspace,
    cx: &CallCx,
    input: WorkspaceStart,
) -> Result<Reply<WorkspaceStarted>, ToolError> {
    let next = state.on(Want::Start)?;
    state.handle.shared.may_start()?;
    let given_up = state.ledger.parked.is_some().then(|| give_memory_up(state, cx));
    let (workspace, mut plan) = (state.handle.clone(), state.ledger.plan.clone());
    let before = std::mem::take(&mut plan.volumes);
    plan.volumes = workspace.shared.attach_again(cx.session, &plan, &before, input.volumes)?;
    state.set_phase(next);
    let (start, change, cx) = (Start::of(&state.ledger), state.ledger.change.clone(), cx.clone());
    Ok(Reply::later(async move {
        if let Some(given_up) = given_up
            && let Err(error) = given_up.await
        {
            workspace.settle(Phase::Parked, None);
            return Err(error);
        }
        let started = async {
            set_volumes(&workspace, &plan, &before).await?;
            bring_up_again(&workspace, &plan, start, change, &cx).await
        };
        match cx.guard(started).await {
            Ok(boot_time_ms) => {
                workspace.publish(
                    "workspace.started",
                    json!({ "name": plan.name, "boot_time_ms": boot_time_ms }),
                );
                workspace.settle(Phase::Running, None);
                Ok(WorkspaceStarted {
                    workspace_id: plan.id,
                    name: plan.name.to_string(),
                    state: Phase::Running,
                    ip: workspace.shared.ip(plan.id),
                    boot_time_ms,
                })
            }
            Err(error) => {
                fail_start(&workspace, &plan, &error).await;
                Err(error)
            }
        }
    }))
}

/// `workspace_start` of a workspace that sleeps or is being woken.
///
/// # Errors
/// `invalid_input` for other volumes, which a machine that goes on cannot mount.
fn start_parked(
    state: &mut Workspace,
    input: &WorkspaceStart,
) -> Result<Reply<WorkspaceStarted>, ToolError> {
    if input.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
        let message = "a machine that goes on where it was mounts no volumes";
        return Err(ToolError::invalid(message).next("leave volumes out, or set from_disk"));
    }
    let awake = wake::until_awake(state);
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    Ok(Reply::later(async move {
        let boot_time_ms = awake.await?;
        Ok(WorkspaceStarted {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            state: Phase::Running,
            ip: workspace.shared.ip(plan.id),
            boot_time_ms,
        })
    }))
}

/// Gives up the memory of a parked workspace before it starts from its disk.
fn give_memory_up(
    state: &Workspace,
    cx: &CallCx,
) -> impl Future<Output = Result<(), ToolError>> + Send + use<> {
    let (workspace, memory) = (state.handle.clone(), state.ledger.plan.spec.memory());
    let (name, session) = (state.ledger.plan.name.clone(), cx.session);
    let left = state.ledger.parked.as_ref().and_then(|parked| parked.left.clone());
    let driver = state.handle.shared.driver(state.ledger.plan.spec.isolation);
    async move {
        if let Some(left) = left {
            driver?.kill(&left).await?;
        }
        let sessions = &workspace.shared.daemon.sessions;
        sessions.reserve(session, memory).await?;
        let event = ("workspace.memory_given_up", json!({ "name": name }));
        let noted = workspace.commit(vec![Record::MemoryGivenUp], Some(event)).await;
        if noted.is_err() {
            sessions.release(session, memory);
        }
        noted
    }
}

/// Records the workspace's volumes, where they changed.
async fn set_volumes(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    before: &[AttachedVolume],
) -> Result<(), ToolError> {
    if plan.volumes == before {
        workspace.shared.volumes.set(plan.id, before);
        return Ok(());
    }
    // Until the record is durable, the old and the new volumes both count as in use.
    workspace.note(Record::VolumesSet { volumes: plan.volumes.clone() }).await?;
    workspace.shared.volumes.set(plan.id, &plan.volumes);
    fault_point!("start.after_volumes");
    Ok(())
}

/// Restarts a crashed machine, as the policy says.
pub(crate) fn restart_due(state: &mut Workspace) {
    // A stopping daemon leaves the workspace crashed.
    if state.status.phase.on(Want::Restart).is_err() || state.handle.shared.may_start().is_err() {
        return;
    }
    let Ok(next) = state.on(Want::Restart) else {
        // A snapshot that the crash cut short is still being settled.
        let workspace = state.handle.clone();
        let _detached = state.me.workers.spawn(async move {
            tokio::time::sleep(RESTART_AGAIN_IN).await;
            let _gone = workspace.actor.send(LifecycleMsg::RestartDue.into());
        });
        return;
    };
    state.set_phase(next);
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let (start, change) = (Start::of(&state.ledger), state.ledger.change.clone());
    let cx = workspace.internal_cx();
    let _detached = state.ops.spawn(async move {
        match bring_up_again(&workspace, &plan, start, change, &cx).await {
            Ok(boot_time_ms) => {
                workspace.publish(
                    "workspace.restarted",
                    json!({ "name": plan.name, "boot_time_ms": boot_time_ms }),
                );
                workspace.settle(Phase::Running, None);
            }
            Err(error) => fail_start(&workspace, &plan, &error).await,
        }
    });
}
