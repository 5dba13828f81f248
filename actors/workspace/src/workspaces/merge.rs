//! `workspace_merge`: checks of the caller, and the way into each workspace.

use std::time::Duration;

use hivekeep_git::merge::{
    self, GuestRepository, MergeSide, MergeWish, Repository, api::MergeResult,
};
use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::Workspaces;
use crate::{api::merge::WorkspaceMerge, directory::DirectoryEntry, messages::GuestMsg};

/// Where a repository is when nobody says.
const DEFAULT_PATH: &str = "/workspace";
/// Longest path and message.
const MAX_PATH_BYTES: usize = 4096;
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// For the way into a guest, beyond the call's own time: bounds a lost actor.
const PATIENCE: Duration = Duration::from_secs(120);

impl Workspaces {
    /// `workspace_merge`.
    ///
    /// # Errors
    /// When a workspace is unknown, named twice or not the caller's, or another merge into
    /// the target goes on; then nothing is done.
    pub(crate) fn merge(
        &mut self,
        cx: &CallCx,
        input: WorkspaceMerge,
    ) -> Result<Reply<MergeResult>, ToolError> {
        let wish = wish(&input)?;
        let target = self.of_caller(cx, &input.target_workspace)?;
        let mut sources: Vec<DirectoryEntry> = Vec::with_capacity(input.source_workspaces.len());
        for named in &input.source_workspaces {
            let source = self.of_caller(cx, named)?;
            if source.id == target.id {
                let message = format!("workspace `{}` is source and target", source.name);
                return Err(ToolError::invalid(message).next("name other workspaces as sources"));
            }
            if sources.iter().any(|other| other.id == source.id) {
                let message = format!("workspace `{}` is named twice", source.name);
                return Err(ToolError::invalid(message));
            }
            sources.push(source);
        }
        let running = self.merges.begin(target.id)?;
        let (cx, spool) = (cx.clone(), self.shared.folders.transfers.clone());
        Ok(Reply::later(async move {
            // The call waits for guests, and there is one merge of a target at a time.
            cx.slot.give_back();
            let target = side(&cx, target).await;
            let sources = sources.into_iter().map(|source| side(&cx, source));
            let sources = futures::future::join_all(sources).await;
            merge::merge(&wish, &running, &target, &sources, &spool, &cx.progress).await
        }))
    }

    pub(super) fn of_caller(&self, cx: &CallCx, named: &str) -> Result<DirectoryEntry, ToolError> {
        let card = self.shared.directory.card(named)?;
        if card.owner == Some(cx.session) {
            return Ok(card);
        }
        Err(ToolError::not_owner())
    }
}

fn wish(input: &WorkspaceMerge) -> Result<MergeWish, ToolError> {
    let path = input.path.clone().unwrap_or_else(|| DEFAULT_PATH.to_owned());
    if !path.starts_with('/') || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err(ToolError::invalid("path must be absolute and at most 4096 bytes"));
    }
    let message = input.commit_message.as_deref();
    if message
        .is_some_and(|m| m.trim().is_empty() || m.len() > MAX_MESSAGE_BYTES || m.contains('\0'))
    {
        return Err(ToolError::invalid("commit_message must be text of at most 65536 bytes"));
    }
    Ok(MergeWish {
        path,
        strategy: input.strategy,
        commit_message: input.commit_message.clone(),
        commit_uncommitted: input.commit_uncommitted,
        keep_going: input.keep_going,
    })
}

/// A workspace with the way into its guest, as far as there is one.
async fn side(cx: &CallCx, card: DirectoryEntry) -> MergeSide {
    let patience = PATIENCE.min(cx.remaining());
    let asked = card
        .address
        .ask(patience, |reply| GuestMsg::Enter(Box::new(cx.clone()), reply).into())
        .await;
    let link = asked.map_err(ToolError::from).and_then(|link| link);
    let repository =
        link.map(|link| Box::new(GuestRepository::new(link, cx.clone())) as Box<dyn Repository>);
    MergeSide { id: card.id, name: card.name.to_string(), repository }
}
