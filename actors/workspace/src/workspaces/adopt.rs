//! `workspace_adopt`.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Reply, SessionId, ToolError};

use super::Workspaces;
use crate::{
    api::session::{Adopted, Adoption, NotAdopted, WorkspaceAdopt},
    directory::DirectoryEntry,
    shared::Shared,
    workspace::{self, Adopt},
};

const PATIENCE: Duration = Duration::from_secs(20);

impl Workspaces {
    /// `workspace_adopt`.
    ///
    /// # Errors
    /// None: its work brings them.
    pub(crate) fn adopt(
        &mut self,
        cx: &CallCx,
        input: WorkspaceAdopt,
    ) -> Result<Reply<Adoption>, ToolError> {
        let (shared, by) = (self.shared.clone(), cx.session);
        Ok(Reply::later(async move {
            match input.workspace_id {
                Some(workspace) => one(&shared, by, &workspace, input.force).await,
                None => all(&shared, by).await,
            }
        }))
    }
}

/// Gives a workspace another owner: `None` when it was the caller's, else whether that took force.
///
/// # Errors
/// `owner_active`, `quota_exceeded`.
pub(super) async fn take(
    card: &DirectoryEntry,
    by: SessionId,
    force: bool,
) -> Result<Option<bool>, ToolError> {
    card.address.ask(PATIENCE, |reply| workspace::Msg::Adopt(Adopt { by, force, reply })).await?
}

fn adopted(card: &DirectoryEntry) -> Adopted {
    Adopted { workspace_id: card.id, name: card.name.to_string(), state: card.phase }
}

async fn one(
    shared: &Arc<Shared>,
    by: SessionId,
    workspace: &str,
    force: bool,
) -> Result<Adoption, ToolError> {
    let card = shared.directory.card(workspace)?;
    let taken = take(&card, by, force).await?;
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

/// Takes what belongs to nobody who is there: never by force.
async fn all(shared: &Arc<Shared>, by: SessionId) -> Result<Adoption, ToolError> {
    let mut adoption = Adoption::default();
    for card in shared.directory.cards() {
        let orphaned = match card.owner {
            Some(owner) if owner == by => false,
            Some(owner) => {
                let standing = shared.daemon.sessions.standing(owner).await;
                standing.ended || (!standing.attached && standing.calls_in_flight == 0)
            }
            None => true,
        };
        if !orphaned {
            continue;
        }
        match take(&card, by, false).await {
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
