//! `workspace_merge`: checks of the caller, and the way into each workspace.

use std::time::Duration;

use hivekeep_git::merge::{
    self, GuestRepository, MergeRequest, MergeSide, Repository,
    api::{MergeResult, MergeStrategy},
};
use hivekeep_kernel::{CallCx, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{directory::DirectoryEntry, manager::Workspaces, messages::GuestMsg};

/// Most sources of one call.
const MAX_SOURCES: usize = 20;
/// Where a repository is when nobody says.
const DEFAULT_PATH: &str = "/workspace";
/// Longest path and message.
const MAX_PATH_BYTES: usize = 4096;
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// For the way into a guest, beyond the call's own time: bounds a lost actor.
const PATIENCE: Duration = Duration::from_secs(120);

tools! { pub FAMILY: "git" for Workspaces, singleton workspaces;
    workspace_merge: WorkspaceMerge => MergeResult = on_merge {
        title: "Merge workspaces", rate: RateClass::Exec, risk: Risk::Medium,
        timeout_secs: 900, weight: one_each,
    };
}

/// A call takes a token for each source, and one for the target.
fn one_each(input: &serde_json::Value) -> u32 {
    let list = input.get("source_workspaces").and_then(|ids| ids.as_array());
    let sources = list.map_or(1, Vec::len).clamp(1, MAX_SOURCES);
    u32::try_from(sources).unwrap_or(1).saturating_add(1)
}

/// Bring the commits of other workspaces into a repository of this one: everything
/// since the merge base that git finds, in the order of the sources. The target is
/// built beside its branch and changes in one step at the end. When a source fails,
/// the target is left exactly as it was, unless keep_going is set. Work that a source
/// has not committed is reported, and merged only with commit_uncommitted. Hooks do
/// not run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceMerge {
    /// Ids or names of 1 to 20 workspaces whose HEAD is merged, in this order.
    #[schemars(length(min = 1, max = MAX_SOURCES))]
    pub source_workspaces: Vec<String>,
    /// Id or name of the workspace whose current branch gets the commits.
    pub target_workspace: String,
    /// Shape of the history that the merge makes.
    pub strategy: MergeStrategy,
    /// Where the repository is, in the target and in every source. Default: /workspace.
    pub path: Option<String>,
    /// Message of the merge commits of branch-per-source, and of the commits that commit_uncommitted makes. Replayed commits keep their own. Default: one that names the workspace.
    pub commit_message: Option<String>,
    /// Commit what a source has not committed, untracked files too, on its branch first. Default: false.
    #[serde(default)]
    pub commit_uncommitted: bool,
    /// Let the sources that merge cleanly stay when another one fails. Default: false.
    #[serde(default)]
    pub keep_going: bool,
}

/// `workspace_merge`.
///
/// # Errors
/// When a workspace is unknown, named twice or not the caller's, or another merge into
/// the target goes on; then nothing is done.
fn on_merge(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceMerge,
) -> Result<Reply<MergeResult>, ToolError> {
    let request = request(&input)?;
    let target = state.of_caller(cx, &input.target_workspace)?;
    let mut sources: Vec<DirectoryEntry> = Vec::with_capacity(input.source_workspaces.len());
    for named in &input.source_workspaces {
        let source = state.of_caller(cx, named)?;
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
    let running = state.merges.begin(target.id)?;
    let (cx, spool) = (cx.clone(), state.shared.folders.transfers.clone());
    Ok(Reply::later(async move {
        // The call waits for guests, and there is one merge of a target at a time.
        cx.slot.give_back();
        let target = side(&cx, target).await;
        let sources = sources.into_iter().map(|source| side(&cx, source));
        let sources = futures::future::join_all(sources).await;
        merge::merge(&request, &running, &target, &sources, &spool, &cx.progress).await
    }))
}

fn request(input: &WorkspaceMerge) -> Result<MergeRequest, ToolError> {
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
    Ok(MergeRequest {
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
