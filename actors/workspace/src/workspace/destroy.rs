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
    snapshots::files,
};

impl Workspace {
    /// `workspace_destroy`. Goes on to the end whether or not the caller waits. The freed quota
    /// goes into the call's reservation, if it has one.
    ///
    /// # Errors
    /// When the workspace is being removed already, or other work must end first.
    pub(crate) fn destroy(
        &mut self,
        cx: &CallCx,
        _: WorkspaceDestroy,
    ) -> Result<Reply<WorkspaceDestroyed>, ToolError> {
        let next = self.on(Want::Destroy)?;
        self.set_phase(next);
        let work = self.destruction_into("workspace.destroyed", cx.reserved.clone());
        let plan = self.ledger.plan.clone();
        Ok(Reply::later(async move {
            work.await?;
            Ok(WorkspaceDestroyed {
                workspace_id: plan.id,
                name: plan.name.to_string(),
                destroyed: true,
            })
        }))
    }

    /// Work that removes the workspace; at its end the manager stops this actor.
    pub(super) fn destruction(
        &self,
        event: &'static str,
    ) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
        self.destruction_into(event, None)
    }

    fn destruction_into(
        &self,
        event: &'static str,
        reserved: Option<Reservation>,
    ) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        let (manager, ops) = (self.manager.clone(), self.ops.clone());
        let removals = self.removals.clone();
        let what = self.ledger.resources();
        let holds = self.ledger.owner.filter(|_| self.ledger.counts());
        let merger = self.merger.as_ref().map(super::merge::Merger::end);
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
                super::bring_up::settle(&workspace, Phase::Crashed, Some(error.to_text())).await;
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
