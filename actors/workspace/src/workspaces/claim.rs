//! Creations that are given a machine of the pool.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, CallCx, Reply, ToolError, WorkspaceId, fault_point};
use tokio::sync::oneshot;

use super::{Msg, Workspaces};
use crate::{
    api::pool::{PoolReport, PoolStatus},
    claims::Claims,
    messages::{Claim, PooledMsg},
    pool::{self, made_of},
    shared::Shared,
};

/// Time for the pool to decide. It never waits for anything itself.
const DECISION: Duration = Duration::from_secs(2);

impl Workspaces {
    /// `pool_status`.
    ///
    /// # Errors
    /// None: its work brings them.
    pub(crate) fn pool_report(
        &mut self,
        _: &CallCx,
        _: PoolStatus,
    ) -> Result<Reply<PoolReport>, ToolError> {
        let pool = self.pool.clone();
        Ok(Reply::later(async move { Ok(pool.ask(DECISION, pool::Msg::Report).await?) }))
    }
}

/// Takes a machine that is exactly what the plan asks for; its id. Otherwise the claims come back
/// and the workspace is made in the ordinary way: whatever is wrong with a machine of the pool, the
/// caller does not hear of it.
///
/// # Errors
/// When the machine's actor ended over it, so that it is not known whether it was given away.
pub(super) async fn take(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    claims: Claims,
) -> Result<Result<WorkspaceId, Claims>, ToolError> {
    if !claims.plan().volumes.is_empty() {
        // A machine that runs mounts no more.
        return Ok(Err(claims));
    }
    let spec = claims.plan().spec.clone();
    let options = &shared.options;
    if !options.pool.classes.iter().any(|class| class.spec(options) == spec) {
        return Ok(Err(claims));
    }
    let Ok(made_of) = made_of(shared, &spec).await else { return Ok(Err(claims)) };
    let asked = spec.clone();
    let take = |taken| Msg::Pool(pool::Msg::Take { spec: asked, made_of, taken });
    let Ok(Some((id, address))) = manager.ask(DECISION, take).await else { return Ok(Err(claims)) };
    fault_point!("pool.after_taken");
    let (reply, answer) = oneshot::channel();
    address.send(PooledMsg::Claim(Box::new(Claim { claims, reply })).into())?;
    // The actor answers on every path and sets the guest a limit.
    let lost = |_| {
        ToolError::internal("the actor of a machine of the pool ended while it was given away")
            .next("workspace_list shows whether it was")
    };
    let (claims, error) = match answer.await.map_err(lost)? {
        Ok(()) => return Ok(Ok(id)),
        Err(refused) => *refused,
    };
    let reason = error.to_text();
    let _pool_gone = manager.send(Msg::Pool(pool::Msg::Spoilt { spec, id, reason }));
    Ok(Err(claims))
}
