//! Stopping a machine, and removing everything of a workspace.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point};
use hivekeep_machine::{LogsOnDiscard, MachineHandle};
use hivekeep_ports::Reservation;
use serde_json::json;

use crate::{
    handle::WorkspaceHandle,
    lifecycle::api::{WorkspaceDestroy, WorkspaceDestroyed, WorkspaceStop, WorkspaceStopped},
    machine::take_down::{self, stop},
    phase::{Phase, Want},
    records::{Planned, Record},
    snapshots::{Merger, files},
    state::Workspace,
};

/// `workspace_stop`.
///
/// # Errors
/// When no machine runs, or other work must end first.
pub(super) fn stop_in_order(
    state: &mut Workspace,
    _: &CallCx,
    _: WorkspaceStop,
) -> Result<Reply<WorkspaceStopped>, ToolError> {
    let next = state.on(Want::Stop)?;
    Ok(Reply::later(stop_machine(state, next)))
}

/// Stops the machine, to the end whether or not anybody waits.
pub(super) fn stop_machine(
    state: &mut Workspace,
    next: Phase,
) -> impl Future<Output = Result<WorkspaceStopped, ToolError>> + Send + use<> {
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    // The handle is from the records, not from the child that watches the machine: a failed
    // stop ended that watch, and can be tried again.
    let handle = state.ledger.handle().cloned();
    let link_state = state.link.now();
    let paused = state.status.phase == Phase::Paused;
    state.set_phase(next);
    let ops = state.ops.clone();
    async move {
        let _keeps_the_work_alive = ops;
        if let (true, Some(handle)) = (paused, &handle) {
            // The guest of a paused machine cannot shut down.
            wake(&workspace, &plan, handle).await;
        }
        let stopped = stop(&workspace, &plan, handle.as_ref(), &link_state).await;
        let how = match stopped {
            Ok(how) => how,
            Err(error) => {
                workspace.settle(Phase::Crashed, Some(error.to_text()));
                return Err(error);
            }
        };
        Ok(WorkspaceStopped {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            state: Phase::Stopped,
            how,
        })
    }
}

/// Stops the machine for the daemon's own stop.
pub(crate) fn stop_for_daemon(state: &mut Workspace, done: tokio::sync::oneshot::Sender<()>) {
    let Ok(next) = state.on(Want::StopForDaemon) else {
        let _asker_gone = done.send(());
        return;
    };
    let work = stop_machine(state, next);
    let _detached = state.ops.spawn(async move {
        if let Err(error) = work.await {
            tracing::error!(%error, "a machine could not be stopped");
        }
        let _asker_gone = done.send(());
    });
}

/// Lets a paused machine go on; one that cannot is killed after the grace period.
async fn wake(workspace: &WorkspaceHandle, plan: &Planned, handle: &MachineHandle) {
    let Ok(driver) = workspace.shared.driver(plan.spec.isolation) else { return };
    if let Err(error) = driver.go_on(handle).await {
        tracing::warn!(workspace = %workspace.id, %error, "a paused machine does not go on");
    }
}

/// `workspace_destroy`. Goes on to the end whether or not the caller waits. The freed quota
/// goes into the call's reservation, if it has one.
///
/// # Errors
/// When the workspace is being removed already, or other work must end first.
pub(crate) fn destroy(
    state: &mut Workspace,
    cx: &CallCx,
    _: WorkspaceDestroy,
) -> Result<Reply<WorkspaceDestroyed>, ToolError> {
    let next = state.on(Want::Destroy)?;
    state.set_phase(next);
    let work = destruction_into(state, "workspace.destroyed", cx.reserved.clone());
    let plan = state.ledger.plan.clone();
    Ok(Reply::later(async move {
        work.await?;
        Ok(WorkspaceDestroyed {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            destroyed: true,
        })
    }))
}

/// Removes the workspace without a call for it.
pub(crate) fn undo(state: &mut Workspace, event: &'static str) {
    state.set_phase(Phase::Destroying);
    let work = destruction(state, event);
    let _detached = state.ops.spawn(work);
}

/// Work that removes the workspace; at its end the manager stops this actor.
pub(crate) fn destruction(
    state: &Workspace,
    event: &'static str,
) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
    destruction_into(state, event, None)
}

fn destruction_into(
    state: &Workspace,
    event: &'static str,
    reserved: Option<Reservation>,
) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let (manager, ops) = (state.manager.clone(), state.ops.clone());
    let removals = state.removals.clone();
    let what = state.ledger.resources();
    let holds = state.ledger.owner.filter(|_| state.ledger.counts());
    let merger = state.merger.as_ref().map(Merger::end);
    async move {
        // The actor is stopped by this work's last step; the work ends later.
        let _keeps_the_work_alive = ops;
        // Nothing is written about a workspace after its end.
        if let Some(ended) = merger {
            ended.await;
        }
        let removed = remove(&workspace, &plan, event).await;
        if let Err(error) = &removed {
            tracing::error!(workspace = %workspace.id, %error, "a workspace could not be removed");
            workspace.settle(Phase::Crashed, Some(error.to_text()));
            return removed;
        }
        let free = workspace.shared.ref_counts.replace(workspace.id, BTreeSet::new());
        files::remove(&workspace.shared.folders, free).await;
        removals.close();
        removals.wait().await;
        match (holds, reserved.filter(|reserved| Some(reserved.session()) == holds)) {
            (Some(_), Some(reserved)) => reserved.put_back(what),
            (Some(owner), None) => workspace.shared.daemon.sessions.release(owner, what),
            (None, _) => {}
        }
        manager.gone(workspace.id).await;
        Ok(())
    }
}

async fn remove(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    event: &'static str,
) -> Result<(), ToolError> {
    workspace.note(Record::DestroyWanted).await?;
    fault_point!("destroy.after_intent");
    take_down::remove_machine(workspace, plan, LogsOnDiscard::Remove).await?;
    fault_point!("destroy.after_discard");
    workspace.shared.volumes.set(workspace.id, &[]);
    workspace.shared.network.leave(workspace.id).await?;
    fault_point!("destroy.after_leave");
    let user = format!("{}.{}", workspace.shared.image_user(), workspace.id);
    if let Err(error) = workspace.shared.images.release(user).await {
        tracing::warn!(%error, "its image counts as used until the next start");
    }
    workspace.publish(event, json!({ "name": plan.name }));
    workspace.shared.logs.forget(workspace.id).await
}
