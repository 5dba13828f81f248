//! `workspace_adopt`: taking over workspaces that nobody holds.

pub(crate) mod adoption;

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Reply, Tier, ToolError, WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    directory::{DirectoryEntry, unknown},
    manager::Workspaces,
    messages::{Adopt, OwnerMsg},
    phase::Phase,
    shared::Shared,
};

tools! { pub FAMILY: "session management" for Workspaces, singleton workspaces;
    workspace_adopt: WorkspaceAdopt => Adoption = Workspaces::adopt {
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

/// What was taken over.
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
    /// How many were taken.
    pub adopted_count: usize,
    /// Those taken.
    pub adopted: Vec<Adopted>,
    /// How many could not be taken.
    pub error_count: usize,
    /// Why not.
    pub errors: Vec<NotAdopted>,
}

/// One workspace taken over.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Adopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: Phase,
}

/// One workspace not taken over.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotAdopted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Code and message.
    pub error: String,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl Workspaces {
    /// `workspace_adopt`.
    ///
    /// # Errors
    /// None at once; the reply has those of the work.
    pub(crate) fn adopt(
        &mut self,
        cx: &CallCx,
        input: WorkspaceAdopt,
    ) -> Result<Reply<Adoption>, ToolError> {
        let (shared, cx) = (self.shared.clone(), cx.clone());
        Ok(Reply::later(async move {
            match input.workspace_id {
                Some(workspace) => one(&shared, &cx, &workspace, input.force).await,
                None => all(&shared, &cx).await,
            }
        }))
    }
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
