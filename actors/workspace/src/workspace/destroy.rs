//! Removing everything of a workspace.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point, ports::Reservation};
use hivekeep_machine::LogsOnDiscard;
use serde_json::json;

use super::{Workspace, take_down};
use crate::{
    api::lifecycle::{WorkspaceDestroy, WorkspaceDestroyed},
    handle::WorkspaceHandle,
    phase::{Phase, Want},
    records::{Planned, Record},
    snapshots::{Merger, files},
};

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
pub(super) fn undo(state: &mut Workspace, event: &'static str) {
    state.set_phase(Phase::Destroying);
    let work = destruction(state, event);
    let _detached = state.ops.spawn(work);
}

/// Work that removes the workspace; at its end the manager stops this actor.
pub(super) fn destruction(
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
