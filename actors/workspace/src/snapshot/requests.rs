//! Requests of others about snapshots: those of a call that forks one, and of a backup, which freezes
//! the disk and deletes the snapshot that this made.

use hivekeep_kernel::{SessionId, SnapshotId, ToolError};
use tokio::sync::oneshot;

use crate::{
    activity::Activity,
    claims::{ForkSource, PinnedFiles},
    messages::{SnapshotMsg, SnapshotRequest, WorkMsg},
    network::reach::inherited,
    snapshot::{self, create, snapshot_named},
    state::Workspace,
};

pub(crate) fn handle(state: &mut Workspace, ask: SnapshotMsg) {
    match ask {
        SnapshotMsg::Make(request) => snapshot_for(state, *request),
        SnapshotMsg::ForkSource { session, snapshot, reply } => {
            let _asker_gone = reply.send(fork_source(state, session, &snapshot));
        }
        SnapshotMsg::Freeze { name, reply } => freeze(state, name, reply),
        SnapshotMsg::Release { snapshot, reply } => {
            match snapshot::delete_of_backup(state, snapshot) {
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
    let mut making = match create::plan_snapshot(state, name, false) {
        Ok(making) => making,
        Err(error) => return drop(reply.send(Err(error))),
    };
    making.node.by_backup = true;
    state.status.activity = Activity::Snapshotting;
    let (workspace, plan, cx) =
        (state.handle.clone(), state.ledger.plan.clone(), state.handle.internal_cx());
    let _detached = state.ops.spawn(async move {
        let made = create::make(&workspace, &plan, making, &cx).await.map(|made| made.node.id);
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Snapshotting).into());
        if let Err(Ok(snapshot)) = reply.send(made) {
            // The backup was given up meanwhile.
            let (reply, _) = oneshot::channel();
            let _actor_gone = workspace.actor.send(SnapshotMsg::Release { snapshot, reply }.into());
        }
    });
}

/// Source that forks of a snapshot begin from; its files are kept until the source is dropped.
///
/// # Errors
/// `not_owner`, `snapshot_not_found`.
pub(crate) fn fork_source(
    state: &Workspace,
    session: SessionId,
    name: &str,
) -> Result<ForkSource, ToolError> {
    state.authorize_session(session)?;
    let node = snapshot_named(&state.ledger, name)?;
    let (base, shared) = (state.ledger.base.clone(), &state.handle.shared);
    Ok(ForkSource {
        keeps_tasks: false,
        workspace: state.handle.id,
        workspace_name: state.ledger.plan.name.clone(),
        spec: state.ledger.plan.spec.clone(),
        base: base.ok_or_else(|| ToolError::internal("a disk without a base"))?,
        node: node.clone(),
        env: state.ledger.env.clone(),
        defaults: state.ledger.defaults.clone(),
        network: inherited(shared, state.handle.id),
        labels: state.ledger.plan.labels.clone(),
        lifetime: None,
        _pinned: PinnedFiles::new(shared.ref_counts.clone(), shared.folders.clone(), node),
    })
}

/// Makes a snapshot with memory for a call that forks it.
fn snapshot_for(state: &mut Workspace, request: SnapshotRequest) {
    let SnapshotRequest { cx, session, name, reply } = request;
    let making =
        state.authorize_session(session).and_then(|()| create::plan_snapshot(state, name, true));
    let making = match making {
        Ok(making) => making,
        Err(error) => return drop(reply.send(Err(error))),
    };
    state.status.activity = Activity::Snapshotting;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let _detached = state.ops.spawn(async move {
        let made = create::make(&workspace, &plan, making, &cx).await;
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Snapshotting).into());
        let _caller_gone = reply.send(made);
    });
}
