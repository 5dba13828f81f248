//! Commit of a new workspace's plan, together with its place in the network.

use std::sync::Arc;

use hivekeep_kernel::{ToolError, WorkspaceId};

use crate::{records::Planned, shared::Shared};

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
