//! Changing the owner.

use std::time::Duration;

use hivekeep_kernel::{Layer, SessionId, ToolError, ports::Standing};
use serde_json::json;

use crate::{
    codes,
    directory::unknown,
    handle::WorkspaceHandle,
    messages::{Adopt, OwnerMsg},
    phase::Want,
    records::Record,
    state::Workspace,
};

/// Idle time after which a session's workspaces may be taken over.
const IDLE_ENOUGH: Duration = Duration::from_secs(60);

pub(crate) fn adopt(state: &mut Workspace, wish: Adopt) {
    let Adopt { of_any_user, by, force, reply } = wish;
    let (owner, user) = (state.ledger.owner, state.ledger.user);
    if owner == Some(by) {
        return drop(reply.send(Ok(None)));
    }
    let sessions = &state.handle.shared.daemon.sessions;
    if !of_any_user && !sessions.is_of_user(by, user, owner) {
        return drop(reply.send(Err(unknown(&state.handle.id.to_string()))));
    }
    if let Err(error) = state.on(Want::Adopt) {
        return drop(reply.send(Err(error)));
    }
    state.status.adopting = true;
    let workspace = state.handle.clone();
    let holds = state.ledger.counts().then(|| state.ledger.resources());
    let _detached = state.ops.spawn(async move {
        let outcome = take_over(&workspace, owner, by, force, holds).await;
        let _actor_gone = workspace.actor.send(OwnerMsg::Adopted.into());
        let _caller_gone = reply.send(outcome.map(Some));
    });
}

async fn take_over(
    workspace: &WorkspaceHandle,
    owner: Option<SessionId>,
    by: SessionId,
    force: bool,
    holds: Option<hivekeep_kernel::Resources>,
) -> Result<bool, ToolError> {
    let sessions = &workspace.shared.daemon.sessions;
    let forced = match owner {
        None => false,
        Some(owner) => may_take(sessions.standing(owner).await, force)?,
    };
    if let Some(holds) = holds {
        sessions.take_over(by, owner, holds).await?;
    }
    let event = ("workspace.adopted", json!({ "by": by, "from": owner, "forced": forced }));
    let owned = Record::Owned { by: Some(by), user: sessions.user(by) };
    if let Err(error) = workspace.commit(vec![owned], Some(event)).await {
        holds.into_iter().for_each(|holds| sessions.release(by, holds));
        return Err(error);
    }
    if let (Some(owner), Some(holds)) = (owner, holds) {
        sessions.release(owner, holds);
    }
    Ok(forced)
}

/// Whether a workspace may be taken from a session of this standing, and whether
/// that takes force. A session with a call running is never idle.
fn may_take(standing: Standing, force: bool) -> Result<bool, ToolError> {
    if standing.ended {
        return Ok(false);
    }
    let busy = standing.calls_in_flight > 0;
    let idle = !busy && standing.idle_for >= IDLE_ENOUGH;
    if force && idle {
        return Ok(true);
    }
    // A session whose client disconnected keeps its workspaces for a while, in case the client
    // comes back.
    if !busy && !standing.attached && idle {
        return Ok(false);
    }
    let error = ToolError::new(Layer::Policy, codes::OWNER_ACTIVE, "its session is in use")
        .detail("idle_secs", standing.idle_for.as_secs())
        .detail("calls_in_flight", standing.calls_in_flight);
    Err(if standing.attached && !force {
        error.next("pass force: true; it is taken once its session was idle for 60 s")
    } else {
        error.next("try again when its session has been idle for 60 s").retryable()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(attached: bool, calls: u32, idle_secs: u64) -> Standing {
        Standing {
            attached,
            calls_in_flight: calls,
            idle_for: Duration::from_secs(idle_secs),
            ended: false,
        }
    }

    #[test]
    fn only_idle_sessions_lose_anything() {
        assert!(may_take(Standing { ended: true, ..standing(false, 0, 0) }, false).is_ok());
        assert_eq!(may_take(standing(false, 0, 61), false).ok(), Some(false));
        assert_eq!(may_take(standing(true, 0, 61), true).ok(), Some(true));
        for refused in [
            may_take(standing(true, 0, 3600), false),
            may_take(standing(true, 0, 59), true),
            may_take(standing(true, 1, 3600), true),
            may_take(standing(false, 1, 3600), true),
            may_take(standing(false, 0, 10), false),
        ] {
            assert_eq!(refused.expect_err("taken").code, "owner_active");
        }
    }
}
