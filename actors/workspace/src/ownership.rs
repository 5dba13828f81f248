//! Owners of workspaces: `workspace_adopt`, which takes over those that nobody holds, and the change in the
//! workspace.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, Reply, SessionId, Tier, ToolError, WorkspaceId, tools};
use hivekeep_ports::Standing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    codes,
    directory::{DirectoryEntry, unknown},
    handle::WorkspaceHandle,
    manager::Workspaces,
    messages::{Adopt, OwnerMsg},
    phase::{Phase, Want},
    records::Record,
    shared::Shared,
    state::Workspace,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Idle time after which a session's workspaces may be taken over.
const IDLE_ENOUGH: Duration = Duration::from_secs(60);

tools! { pub FAMILY: "session management" for Workspaces, singleton workspaces;
    workspace_adopt: WorkspaceAdopt => Adoption = on_adopt {
        title: "Adopt workspaces", effect: Idempotent, risk: Risk::High,
    };
}

/// Take over a workspace whose session is gone, or all of them. A workspace of
/// another session that is in use is never taken; with `force` one whose session
/// has been idle for a minute is.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceAdopt {
    /// Id or name of the workspace; left out, every orphaned one of the same user is taken.
    pub workspace_id: Option<String>,
    /// Take it from a session that still exists, if that has been idle for 60 s.
    #[serde(default)]
    pub force: bool,
}

/// Workspaces that were taken over, and those that could not be.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Adoption {
    /// The workspace, when one was named.
    pub workspace_id: Option<WorkspaceId>,
    /// Its name.
    pub name: Option<String>,
    /// Its state.
    pub state: Option<Phase>,
    /// Its address.
    pub ip: Option<String>,
    /// Whether the owner changed; false when it was the caller's already.
    pub adopted_one: Option<bool>,
    /// Whether it was taken from a session that still exists.
    pub forced: Option<bool>,
    /// Number of workspaces that were taken.
    pub adopted_count: usize,
    /// Workspaces that were taken.
    pub adopted: Vec<Adopted>,
    /// Number of workspaces that could not be taken.
    pub error_count: usize,
    /// Workspaces that could not be taken, each with its error.
    pub errors: Vec<NotAdopted>,
}

/// Workspace that was taken over.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Adopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: Phase,
}

/// Workspace that could not be taken over.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotAdopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Code and message of the error.
    pub error: String,
}

/// `workspace_adopt`.
///
/// # Errors
/// None at once; the reply has those of the work.
fn on_adopt(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceAdopt,
) -> Result<Reply<Adoption>, ToolError> {
    let (shared, cx) = (state.shared.clone(), cx.clone());
    Ok(Reply::later(async move {
        match input.workspace_id {
            Some(workspace) => one(&shared, &cx, &workspace, input.force).await,
            None => all(&shared, &cx).await,
        }
    }))
}

/// Gives a workspace to the caller: `None` when it was the caller's, else whether that took force.
///
/// # Errors
/// `owner_active`, `quota_exceeded`, `workspace_not_found` for another user's.
pub(super) async fn take(
    card: &DirectoryEntry,
    cx: &CallCx,
    force: bool,
) -> Result<Option<bool>, ToolError> {
    let (of_any_user, by) = (cx.view.reaches(Tier::Operator), cx.session);
    let adopt = |reply| OwnerMsg::Adopt(Adopt { of_any_user, by, force, reply }).into();
    card.address.ask(PATIENCE, adopt).await?
}

fn adopted(card: &DirectoryEntry) -> Adopted {
    Adopted { workspace_id: card.id, name: card.name.to_string(), state: card.phase }
}

async fn one(
    shared: &Arc<Shared>,
    cx: &CallCx,
    workspace: &str,
    force: bool,
) -> Result<Adoption, ToolError> {
    let card = shared.directory.card(workspace)?;
    if !shared.is_shown(cx, &card) {
        return Err(unknown(workspace));
    }
    let taken = take(&card, cx, force).await?;
    Ok(Adoption {
        workspace_id: Some(card.id),
        name: Some(card.name.to_string()),
        state: Some(card.phase),
        ip: shared.ip(card.id),
        adopted_one: Some(taken.is_some()),
        forced: Some(taken.unwrap_or(false)),
        adopted_count: usize::from(taken.is_some()),
        adopted: taken.map(|_| adopted(&card)).into_iter().collect(),
        error_count: 0,
        errors: Vec::new(),
    })
}

/// Takes the caller's workspaces whose owner is gone: never by force.
async fn all(shared: &Arc<Shared>, cx: &CallCx) -> Result<Adoption, ToolError> {
    let mut adoption = Adoption::default();
    for card in shared.directory.cards() {
        // Another user's workspace is taken only by name, and only by an operator.
        if !shared.daemon.sessions.is_of_user(cx.session, card.user, card.owner) {
            continue;
        }
        let orphaned = match card.owner {
            Some(owner) if owner == cx.session => false,
            Some(owner) => {
                let standing = shared.daemon.sessions.standing(owner).await;
                standing.ended || (!standing.attached && standing.calls_in_flight == 0)
            }
            None => true,
        };
        if !orphaned {
            continue;
        }
        match take(&card, cx, false).await {
            Ok(Some(_)) => adoption.adopted.push(adopted(&card)),
            Ok(None) => {}
            Err(error) => {
                adoption.errors.push(NotAdopted { workspace_id: card.id, error: error.to_text() });
            }
        }
    }
    adoption.adopted_count = adoption.adopted.len();
    adoption.error_count = adoption.errors.len();
    Ok(adoption)
}

pub(crate) fn adopt(state: &mut Workspace, request: Adopt) {
    let Adopt { of_any_user, by, force, reply } = request;
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
