//! Sources of forks, and snapshots that are made to be forked.

use hivekeep_kernel::{SessionId, ToolError};

use super::{
    Workspace,
    snapshot::{self, listing::snapshot_named},
};
use crate::{
    activity::Activity,
    fork_source::{ForkSource, PinnedFiles},
    messages::{SnapshotRequest, WorkMsg},
    network::inherited,
};

/// Source that forks of a snapshot begin from; its files are kept until the source is dropped.
///
/// # Errors
/// `not_owner`, `snapshot_not_found`.
pub(super) fn fork_source(
    state: &Workspace,
    session: SessionId,
    name: &str,
) -> Result<ForkSource, ToolError> {
    state.authorize_session(session)?;
    let node = snapshot_named(&state.ledger, name)?;
    let (base, shared) = (state.ledger.base.clone(), &state.handle.shared);
    Ok(ForkSource {
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
pub(super) fn snapshot_for(state: &mut Workspace, request: SnapshotRequest) {
    let SnapshotRequest { cx, session, name, reply } = request;
    let making =
        state.authorize_session(session).and_then(|()| snapshot::plan_snapshot(state, name, true));
    let making = match making {
        Ok(making) => making,
        Err(error) => return drop(reply.send(Err(error))),
    };
    state.status.activity = Activity::Snapshotting;
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    let _detached = state.ops.spawn(async move {
        let made = snapshot::make(&workspace, &plan, making, &cx).await;
        let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::Snapshotting).into());
        let _caller_gone = reply.send(made);
    });
}
