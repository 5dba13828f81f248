//! Reservations of a creation before it is durable: a name, a slot, the session's quota.

use std::sync::Arc;

use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Layer, ToolError,
    ports::{MountSource, VolumeWish},
};
use hivekeep_machine::Isolation;

use crate::{codes, records::Planned, shared::Shared};

/// Claims of one creation; given back when dropped, unless kept.
pub(crate) struct Claims {
    shared: Arc<Shared>,
    plan: Planned,
    quota: bool,
    kept: bool,
}

impl Claims {
    /// Takes the name of a plan that has no slot yet.
    ///
    /// # Errors
    /// `name_taken`.
    pub(crate) fn of(shared: &Arc<Shared>, plan: Planned) -> Result<Self, ToolError> {
        let plan = Planned { user: shared.daemon.sessions.user(plan.owner), ..plan };
        if plan.pool.is_none() {
            shared.directory.claim(&plan.name, plan.id)?;
        }
        Ok(Self { shared: shared.clone(), plan, quota: false, kept: false })
    }

    /// Attaches the volumes that the session asks for.
    ///
    /// # Errors
    /// `invalid_input` for their paths, `volumes_unsupported`, `volume_not_found`.
    pub(crate) fn attach(&mut self, cx: &CallCx, wanted: &[VolumeWish]) -> Result<(), ToolError> {
        self.plan.volumes = self.shared.attach(cx.session, &self.plan, wanted)?;
        Ok(())
    }

    /// Counts the workspace against the quota of the session that asked for it, out of the call's own
    /// reservation if it has one. The pool's machines count against none.
    ///
    /// # Errors
    /// `quota_exceeded`, or `host_disk_full` when the host has too little room for a disk.
    pub(crate) async fn reserve(&mut self, cx: &CallCx) -> Result<(), ToolError> {
        self.shared.daemon.room.admit(&self.shared.folders.disks)?;
        let Some(owner) = self.plan.holder() else { return Ok(()) };
        let what = self.plan.spec.resources();
        match cx.reserved.as_ref().filter(|reserved| reserved.session() == owner) {
            Some(reserved) => reserved.draw(what).await?,
            None => self.shared.daemon.sessions.reserve(owner, what).await?,
        }
        self.quota = true;
        Ok(())
    }

    /// Takes a slot, and decides whether a sandbox has several users. When no slot is free, `evict` removes
    /// a machine of the pool to make room.
    ///
    /// # Errors
    /// `too_many_workspaces`.
    pub(crate) async fn slot(
        &mut self,
        evict: impl Fn() -> BoxFuture<'static, bool> + Send,
    ) -> Result<(), ToolError> {
        let most = self.shared.options.max_workspaces;
        loop {
            if let Some(slot) = self.shared.directory.take_slot(self.plan.id, most) {
                self.plan.slot = slot;
                self.plan.several_users = has_several_users(&self.shared, &self.plan)?;
                return Ok(());
            }
            // A slot that became free may be taken by another call before this one looks.
            if self.plan.pool.is_some() || !evict().await {
                return Err(none_free(most));
            }
        }
    }

    pub(crate) fn plan(&self) -> &Planned {
        &self.plan
    }

    /// Keeps the claims: the plan is durable, or may be, so its workspace gives them back.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Gives the claims back on drop again: the plan is not durable after all.
    pub(crate) fn unkeep(&mut self) {
        self.kept = false;
    }
}

/// Whether a new sandbox has users besides root. A folder of the host has one owner, who is root in the
/// sandbox, so with such a folder everything belongs to root.
fn has_several_users(shared: &Shared, plan: &Planned) -> Result<bool, ToolError> {
    let beside_host = plan.volumes.iter().any(|it| matches!(it.volume, MountSource::Place(_)));
    let isolation = plan.spec.isolation;
    let driver = shared.driver(isolation)?;
    let supports = driver.capabilities().several_users.is_yes();
    Ok(isolation == Isolation::Sandbox && !beside_host && supports)
}

fn none_free(most: usize) -> ToolError {
    ToolError::new(
        Layer::Quota,
        codes::TOO_MANY_WORKSPACES,
        format!("the daemon holds its {most} workspaces"),
    )
    .next("destroy workspaces that are not needed, or raise workspace.max_workspaces")
    .detail("max_workspaces", most)
    .retryable()
}

impl Drop for Claims {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.shared.volumes.set(self.plan.id, &[]);
        self.shared.directory.release(&self.plan);
        if let (true, Some(owner)) = (self.quota, self.plan.holder()) {
            self.shared.daemon.sessions.release(owner, self.plan.spec.resources());
        }
    }
}
