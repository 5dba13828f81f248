//! A new workspace's plan and its place in the network, in one commit of the journal.

use std::sync::Arc;

use hivekeep_kernel::{
    ToolError, WorkspaceId,
    ports::{NetworkPolicy, NetworkWish},
};

use crate::{records::Planned, shared::Shared};

/// Makes the plan durable and takes the workspace into the network. Neither waits for the other:
/// they are two streams of one journal, and a crash between them leaves a plan that is undone or a
/// member that nobody has planned, which the next start dismisses. `keep` is called once what was
/// claimed for the plan is a record's.
///
/// # Errors
/// When one of them fails; then nothing is left of the other.
pub(super) async fn plan_and_join(
    shared: &Arc<Shared>,
    plan: &Planned,
    keep: impl FnOnce(),
) -> Result<(), ToolError> {
    let joins = shared.has_network(plan.spec.isolation).await?;
    shared.young.insert(plan.id);
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
                // What the record holds stays held: the next start undoes it.
                tracing::error!(workspace = %plan.id, %error, "a plan could not be taken back");
                keep();
            }
            shared.take_young(plan.id);
            Err(refused)
        }
        (Err(error), joined) => {
            shared.take_young(plan.id);
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

/// What forks ask of the network when they say nothing: all of their source's policy but for its
/// group, which is a team's to give. Forwards are the source's own.
pub(crate) fn inherited(shared: &Shared, source: WorkspaceId) -> NetworkWish {
    let Some(view) = shared.network.view(source) else { return NetworkWish::default() };
    let NetworkPolicy { allow_internet, allow_inter_vm, allowed_ports, egress_allow, group: _ } =
        view.policy;
    NetworkWish {
        allow_internet: Some(allow_internet),
        allow_inter_vm: Some(allow_inter_vm),
        allowed_ports: Some(allowed_ports),
        egress_allow: Some(egress_allow),
        group: None,
    }
}

/// What of a creation's wish holds for a place that is given later: not the group. Whoever had
/// none, or left the network in none, is put into none, whatever has that name by now.
pub(crate) fn later(wish: &NetworkWish) -> NetworkWish {
    NetworkWish { group: None, ..wish.clone() }
}

/// One wish in place of another one, as far as it goes.
pub(crate) fn over(wish: NetworkWish, other: NetworkWish) -> NetworkWish {
    NetworkWish {
        allow_internet: wish.allow_internet.or(other.allow_internet),
        allow_inter_vm: wish.allow_inter_vm.or(other.allow_inter_vm),
        allowed_ports: wish.allowed_ports.or(other.allowed_ports),
        egress_allow: wish.egress_allow.or(other.egress_allow),
        group: wish.group.or(other.group),
    }
}
