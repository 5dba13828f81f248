//! Claims of a creation, and the commit of its plan together with its place in the network.

use std::sync::Arc;

use futures::future::BoxFuture;
use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId};
use hivekeep_machine::Isolation;
use hivekeep_ports::{MountSource, VolumeRequest};

use crate::{claims::Claims, codes, records::Planned, shared::Shared};

/// Takes the name of a plan that has no slot yet.
///
/// # Errors
/// `name_taken`.
pub(crate) fn name(shared: &Arc<Shared>, plan: Planned) -> Result<Claims, ToolError> {
    let plan = Planned { user: shared.daemon.sessions.user(plan.owner), ..plan };
    if plan.pool.is_none() {
        shared.directory.claim(&plan.name, plan.id)?;
    }
    let shared = shared.clone();
    let give_back = move |plan: &Planned, quota: bool| {
        shared.volumes.set(plan.id, &[]);
        shared.directory.release(plan);
        if let (true, Some(owner)) = (quota, plan.holder()) {
            shared.daemon.sessions.release(owner, plan.spec.resources());
        }
    };
    Ok(Claims::new(plan, Box::new(give_back)))
}

/// Attaches the volumes that the session asks for.
///
/// # Errors
/// `invalid_input` for their paths, `volumes_unsupported`, `volume_not_found`.
pub(crate) fn volumes(
    shared: &Shared,
    claims: &mut Claims,
    cx: &CallCx,
    wanted: &[VolumeRequest],
) -> Result<(), ToolError> {
    let volumes = shared.attach(cx.session, claims.plan(), wanted)?;
    claims.plan_mut().volumes = volumes;
    Ok(())
}

/// Counts the workspace against the quota of the session that asked for it, out of the call's own
/// reservation if it has one. The pool's machines count against none.
///
/// # Errors
/// `quota_exceeded`, or `host_disk_full` when the host has too little room for a disk.
pub(crate) async fn quota(
    shared: &Shared,
    claims: &mut Claims,
    cx: &CallCx,
) -> Result<(), ToolError> {
    shared.daemon.room.admit(&shared.folders.disks)?;
    let Some(owner) = claims.plan().holder() else { return Ok(()) };
    let what = claims.plan().spec.resources();
    match cx.reserved.as_ref().filter(|reserved| reserved.session() == owner) {
        Some(reserved) => reserved.draw(what).await?,
        None => shared.daemon.sessions.reserve(owner, what).await?,
    }
    claims.reserved();
    Ok(())
}

/// Takes a slot, and decides whether a sandbox has several users. When no slot is free, `evict` removes
/// a machine of the pool to make room.
///
/// # Errors
/// `too_many_workspaces`.
pub(crate) async fn slot(
    shared: &Shared,
    claims: &mut Claims,
    evict: impl Fn() -> BoxFuture<'static, bool> + Send,
) -> Result<(), ToolError> {
    let most = shared.options.max_workspaces;
    loop {
        if let Some(slot) = shared.directory.take_slot(claims.plan().id, most) {
            claims.plan_mut().slot = slot;
            let several_users = has_several_users(shared, claims.plan())?;
            claims.plan_mut().several_users = several_users;
            return Ok(());
        }
        // A slot that became free may be taken by another call before this one looks.
        if claims.plan().pool.is_some() || !evict().await {
            return Err(none_free(most));
        }
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

/// Makes the plan durable and takes the workspace into the network. Neither waits for the other:
/// they are two streams of one journal, and a crash between them leaves a plan that is undone or a
/// member without a plan, which the next start dismisses. `keep` is called once the claims belong to
/// a record.
///
/// # Errors
/// When one of them fails; then nothing is left of the other.
pub(super) async fn plan_and_join(
    shared: &Arc<Shared>,
    plan: &Planned,
    keep: impl FnOnce(),
) -> Result<(), ToolError> {
    let joins = shared.has_network(plan.spec.isolation).await?;
    shared.fresh.insert(plan.id);
    let joining = async {
        match joins {
            true => shared.network.join(plan.id, plan.network.clone()).await.map(drop),
            false => Ok(()),
        }
    };
    let planning = shared.logs.plan(plan.clone());
    match tokio::join!(planning, joining) {
        (Ok(()), Ok(())) => {
            keep();
            Ok(())
        }
        (Ok(()), Err(refused)) => {
            if let Err(error) = shared.logs.forget(plan.id).await {
                // Claims of a record stay held: the next start undoes the plan.
                tracing::error!(workspace = %plan.id, %error, "a plan could not be taken back");
                keep();
            }
            shared.take_fresh(plan.id);
            Err(refused)
        }
        (Err(error), joined) => {
            shared.take_fresh(plan.id);
            if joined.is_ok() {
                leave(shared, plan.id).await;
            }
            Err(error)
        }
    }
}

async fn leave(shared: &Shared, id: WorkspaceId) {
    if let Err(error) = shared.network.leave(id).await {
        tracing::error!(workspace = %id, %error, "a place in the network stays taken");
    }
}
