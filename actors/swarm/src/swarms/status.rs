//! The tools `swarm_status` and `swarm_cancel`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, SessionId, SwarmId, ToolError};
use hivekeep_runtime::log;

use super::{SwarmMember, Swarms, no_swarm, result_so_far};
use crate::{
    codes,
    shared::SwarmShared,
    swarm::state::{SwarmState, stream},
    tools::{SwarmCancel, SwarmCancelled, SwarmResult, SwarmStatus, SwarmStatusResult},
};

impl Swarms {
    pub(crate) fn status(
        &mut self,
        cx: &CallCx,
        SwarmStatus { swarm_id, wait_secs }: SwarmStatus,
    ) -> Result<Reply<SwarmStatusResult>, ToolError> {
        let wait_secs = wait_secs.unwrap_or(0);
        // Swarms that have grown too old meanwhile are removed first.
        self.prune();
        let Some(id) = swarm_id else {
            let rows: Vec<_> = self.swarms.iter().map(|(_, swarm)| swarm.row(cx.session)).collect();
            let (count, swarms) = (Some(rows.len()), Some(rows));
            return Ok(Reply::Now(SwarmStatusResult { swarms, count, swarm: None }));
        };
        let member = self.find(id)?;
        let (shared, cx, owner) = (self.shared.clone(), cx.clone(), member.owner());
        let handle = match member {
            SwarmMember::Planned { .. } => return Err(planned(id)),
            SwarmMember::Saga(handle) => Some(handle.clone()),
            SwarmMember::Finished { .. } => None,
        };
        let waiting = match wait_secs {
            0 => None,
            _ => Some(shared.waiters.enter(id, cx.session)?),
        };
        Ok(Reply::later(async move {
            authorize(&shared, &cx, owner, id).await?;
            if waiting.is_some() {
                // Bounded by what was just taken, and not by the admission of all swarms.
                cx.slot.give_back();
            }
            let result = match handle {
                None => finished(&shared, id).await?,
                Some(handle) => {
                    let mut view = handle.watch();
                    let over = view.wait_for(|view| {
                        matches!(view.state, SwarmState::Finished(_)) || view.given_up.is_some()
                    });
                    let wait = Duration::from_secs(wait_secs);
                    let waited =
                        cx.guard(async { Ok(tokio::time::timeout(wait, over).await.is_ok()) });
                    waited.await?;
                    result_so_far(&handle)
                }
            };
            Ok(SwarmStatusResult { swarm: Some(result), ..SwarmStatusResult::default() })
        }))
    }

    pub(crate) fn cancel(
        &mut self,
        cx: &CallCx,
        SwarmCancel { swarm_id }: SwarmCancel,
    ) -> Result<Reply<SwarmCancelled>, ToolError> {
        let member = self.find(swarm_id)?;
        let (shared, cx, owner) = (self.shared.clone(), cx.clone(), member.owner());
        let handle = match member {
            SwarmMember::Planned { .. } => return Err(planned(swarm_id)),
            SwarmMember::Saga(handle) => Some(handle.clone()),
            SwarmMember::Finished { .. } => None,
        };
        Ok(Reply::later(async move {
            authorize(&shared, &cx, owner, swarm_id).await?;
            let cancelled = match handle {
                // A swarm that is given up reads its cancellation at the next start of the daemon.
                Some(handle) => handle.cancel().await?,
                None => false,
            };
            Ok(SwarmCancelled { swarm_id, cancelled })
        }))
    }
}

/// Authorizes a call about a swarm. Anybody may read and end the swarms of a session that is over.
async fn authorize(
    shared: &SwarmShared,
    cx: &CallCx,
    owner: SessionId,
    id: SwarmId,
) -> Result<(), ToolError> {
    if owner == cx.session || shared.sessions.standing(owner).await.ended {
        return Ok(());
    }
    let message = format!("the swarm `{id}` belongs to another session");
    Err(ToolError::new(Layer::Policy, codes::NOT_OWNER, message))
}

fn planned(id: SwarmId) -> ToolError {
    let message = format!("the swarm `{id}` is being written down");
    ToolError::new(Layer::Actor, codes::SWARM_STATE, message)
        .retry_after(Duration::from_millis(200))
}

/// The result that is kept of a swarm.
async fn finished(shared: &SwarmShared, id: SwarmId) -> Result<SwarmResult, ToolError> {
    match log::read::<SwarmState>(&shared.journal, &stream(id)).await?.map(|loaded| loaded.state) {
        Some(SwarmState::Finished(over)) => Ok(over.result.clone()),
        Some(SwarmState::Running(_)) | None => Err(no_swarm(id)),
    }
}
