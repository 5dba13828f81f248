//! Work of several workspaces brought together in one.

use hivekeep_git::merge::api::MergeStrategy;
use schemars::JsonSchema;
use serde::Deserialize;

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
    #[schemars(length(min = 1, max = MAX_SOURCES))]
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
