//! Sources of forks, and snapshots that are made to be forked.

use hivekeep_kernel::{SessionId, ToolError};

use super::{Msg, SnapshotRequest, Workspace, snapshot};
use crate::{
    activity::Activity,
    fork_source::{ForkSource, PinnedFiles},
    network::inherited,
};

impl Workspace {
    /// Source that forks of a snapshot begin from; its files are kept until the source is dropped.
    ///
    /// # Errors
    /// `not_owner`, `snapshot_not_found`.
    pub(super) fn fork_source(
        &self,
        session: SessionId,
        name: &str,
    ) -> Result<ForkSource, ToolError> {
        self.authorize_session(session)?;
        let node = self.snapshot_named(name)?;
        let base = self.ledger.base.clone();
        Ok(ForkSource {
            workspace: self.handle.id,
            workspace_name: self.ledger.plan.name.clone(),
            spec: self.ledger.plan.spec.clone(),
            base: base.ok_or_else(|| ToolError::internal("a disk without a base"))?,
            node: node.clone(),
            env: self.ledger.env.clone(),
            defaults: self.ledger.defaults.clone(),
            network: inherited(&self.handle.shared, self.handle.id),
            labels: self.ledger.plan.labels.clone(),
            lifetime: None,
            _pinned: PinnedFiles::new(self.handle.shared.clone(), node),
        })
    }

    /// Makes a snapshot with memory for a call that forks it.
    pub(super) fn snapshot_for(&mut self, request: SnapshotRequest) {
        let SnapshotRequest { cx, session, name, reply } = request;
        let making = self.authorize_session(session).and_then(|()| self.plan_snapshot(name, true));
        let making = match making {
            Ok(making) => making,
            Err(error) => return drop(reply.send(Err(error))),
        };
        self.activity = Activity::Snapshotting;
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        let _detached = self.ops.spawn(async move {
            let made = snapshot::make(&workspace, &plan, making, &cx).await;
            let _actor_gone = workspace.actor.send(Msg::Finished(Activity::Snapshotting));
            let _caller_gone = reply.send(made);
        });
    }
}
