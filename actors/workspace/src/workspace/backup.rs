//! Requests of others about snapshots: those of a call that forks one, and of a backup, which freezes
//! the disk and deletes the snapshot that this made.

use hivekeep_kernel::{SnapshotId, ToolError};
use tokio::sync::oneshot;

use super::{Workspace, fork_source, snapshot};
use crate::{
    activity::Activity,
    messages::{SnapshotMsg, WorkMsg},
};

pub(super) fn handle(state: &mut Workspace, ask: SnapshotMsg) {
    match ask {
        SnapshotMsg::Make(request) => fork_source::snapshot_for(state, *request),
        SnapshotMsg::ForkSource { session, snapshot, reply } => {
            let _asker_gone = reply.send(fork_source::fork_source(state, session, &snapshot));
        }
        SnapshotMsg::Freeze { name, reply } => freeze(state, name, reply),
        SnapshotMsg::Release { snapshot, reply } => {
            match snapshot::deleting::delete_of_backup(state, snapshot) {
                Ok(None) => drop(reply.send(Ok(()))),
                Ok(Some(deleted)) => {
                    let answer = async move { drop(reply.send(deleted.await)) };
                    let _detached = state.ops.spawn(answer);
                }
                Err(error) => drop(reply.send(Err(error))),
            }
        }
    }
}

fn freeze(
    state: &mut Workspace,
    name: String,
    reply: oneshot::Sender<Result<SnapshotId, ToolError>>,
) {
    let mut making = match snapshot::plan_snapshot(state, name, false) {
        Ok(making) => making,
        Err(error) => return drop(reply.send(Err(error))),
    };
    making.node.by_backup = true;
    state.status.activity = Activity::Snapshotting;
    let (workspace, plan, cx) =
        (state.handle.clone(), state.ledger.plan.clone(), state.handle.internal_cx());
    let _detached = state.ops.spawn(async move {
        let made = snapshot::make(&workspace, &plan, making, &cx).await.map(|made| made.node.id);
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Snapshotting).into());
        if let Err(Ok(snapshot)) = reply.send(made) {
            // The backup was given up meanwhile.
            let (reply, _) = oneshot::channel();
            let _actor_gone = workspace.actor.send(SnapshotMsg::Release { snapshot, reply }.into());
        }
    });
}
