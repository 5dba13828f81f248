//! Work of several workspaces brought together in one.

use hivekeep_git::merge::api::{MergeResult, MergeStrategy};
use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::workspaces::Workspaces;

/// Most sources of one call.
pub(crate) const MAX_SOURCES: usize = 20;

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
    pub source_workspaces: Vec<String>,
    /// Id or name of the workspace whose current branch gets the commits.
    pub target_workspace: String,
    /// What becomes of the history.
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

tools! { pub FAMILY: "git" for Workspaces, singleton workspaces;
    workspace_merge: WorkspaceMerge => MergeResult = Workspaces::merge {
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
