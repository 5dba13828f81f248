//! Result types of a merge.

use hivekeep_kernel::WorkspaceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shape of the history that a merge makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeStrategy {
    /// The commits are replayed one after the other into one line. A merge commit has no place in a line: the commits of both its sides are replayed, and the result must be what a merge would give, or the source is refused with merge_not_linear. Commits that need no replay keep their ids.
    Sequential,
    /// The source's commits come as they are, with their ids, to a branch hivekeep/NAME in the target, and a merge commit joins each to the current branch.
    BranchPerSource,
    /// Every commit is replayed, merge commits too, with their parents and what was resolved in them: the shape of the history stays. Commits that need no replay keep their ids.
    CherryPick,
}

/// Result of a merge, in all and by source.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MergeResult {
    /// Every source is in the target. When false, `conflicts` says what is not, and `head_after` whether anything changed.
    pub success: bool,
    /// The strategy that was asked for.
    pub strategy: MergeStrategy,
    /// The target.
    pub target_workspace: WorkspaceId,
    /// The target's branch; absent when HEAD is detached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The target's commit before.
    pub head_before: String,
    /// The target's commit now.
    pub head_after: String,
    /// Commits of sources that came to the target, without the merge commits made for them.
    pub total_commits_applied: u64,
    /// Ids of the sources that are in the target now.
    pub merged_sources: Vec<WorkspaceId>,
    /// A row for each source that failed.
    pub conflicts: Vec<MergeConflict>,
    /// A row for each source, in the order of the call.
    pub sources: Vec<SourceMerge>,
    /// Sources with work that was not committed when they were looked at.
    pub uncommitted_sources: Vec<Uncommitted>,
    /// Earlier merges into this target that a stop of the daemon cut short and that were cleared away now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted_before: Vec<Interrupted>,
}

/// Result of a merge for a source.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SourceMerge {
    /// The source's workspace.
    pub source_id: WorkspaceId,
    /// Name of the source's workspace.
    pub source_name: String,
    /// Outcome for the source.
    pub status: SourceStatus,
    /// Commits of the source that came to the target; 0 unless `merged`.
    pub commits_applied: u64,
    /// The source's commit that was merged.
    pub head: Option<String>,
    /// The newest commit that the source shares with the target.
    pub merge_base: Option<String>,
    /// How the base was found.
    pub merge_base_found_by: Option<BaseFoundBy>,
    /// Equally good bases beside the one named, after histories that crossed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub further_merge_bases: u64,
    /// Commits whose change the target had already under another id: they are not replayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub already_there: u64,
    /// Merge commits that `sequential` replaced by the commits of their sides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merges_flattened: u64,
    /// Branch of the source in the target, of `branch-per-source`.
    pub branch: Option<String>,
    /// Why that branch could not be made, when the merge itself was.
    pub branch_error: Option<String>,
    /// Submodules that the source changed, at most 100: their entry is merged, their content is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submodules: Vec<String>,
    /// The commit that commit_uncommitted made.
    pub committed: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Outcome of a merge for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceStatus {
    /// The source's commits are in the target.
    Merged,
    /// The source's commits were in the target already.
    UpToDate,
    /// The source's commits merged cleanly and were left out, for another source failed.
    Withheld,
    /// The source's commits could not be merged; `conflicts` says why.
    Failed,
}

/// How a merge base was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaseFoundBy {
    /// By git, from both histories.
    GitMergeBase,
}

/// Why a source is not in the target.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MergeConflict {
    /// The source's workspace.
    pub source_id: WorkspaceId,
    /// Code of the error, stable: `conflict`, `no_common_history`, `merge_not_linear`, `too_many_commits`, `branch_diverged`, `not_a_repository`, `no_commits`, `bundle_too_large`, ...
    pub code: String,
    /// Message of the error.
    pub error: String,
    /// Step that resolves the error.
    pub next_step: Option<String>,
    /// The commit whose replay conflicts.
    pub commit: Option<ConflictCommit>,
    /// Files in conflict, at most 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ConflictFile>,
    /// Files in conflict, all of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub files_total: u64,
}

/// A commit that could not be replayed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConflictCommit {
    /// The commit's id in the source.
    pub sha: String,
    /// First line of the commit's message.
    pub subject: String,
}

/// A file in conflict.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConflictFile {
    /// Path of the file, below the repository.
    pub path: String,
    /// Changes of target and source that conflict.
    pub kind: ConflictKind,
    /// Git sees no text in the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// Parts in conflict, as a combined diff with conflict markers: at most 20 hunks, of the first 20 files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<Hunk>,
    /// There is more than `hunks` shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hunk {
    /// Line ranges in target, source and result, as `@@@ -1,3 -1,3 +1,7 @@@`.
    pub lines: String,
    /// The lines, at most 8 KiB.
    pub text: String,
}

/// Changes of target and source that conflict in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Target and source changed the file.
    BothModified,
    /// Target and source added the file.
    BothAdded,
    /// Target and source removed the file, or renamed it differently.
    BothDeleted,
    /// The target changed the file, the source deleted it.
    DeletedBySource,
    /// The source changed the file, the target deleted it.
    DeletedByTarget,
    /// The target put the file where the source has something else.
    AddedByTarget,
    /// The source put the file where the target has something else.
    AddedBySource,
}

/// Work that is in no commit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Uncommitted {
    /// The source's workspace.
    pub source_id: WorkspaceId,
    /// Files as `git status` names them, at most 200; a new folder is one entry.
    pub files: Vec<String>,
    /// Number of all files.
    pub files_total: u64,
    /// Whether commit_uncommitted made a commit of them; otherwise they are not part of the merge.
    pub committed: bool,
}

/// A merge that was cut short.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Interrupted {
    /// The merge's id.
    pub merge_id: String,
    /// Whether the target has the merge's commits.
    pub outcome: InterruptedOutcome,
}

/// Outcome of a merge that was cut short, in its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterruptedOutcome {
    /// The target has none of the merge's commits.
    Undone,
    /// The target has all the merge's commits; branches of `branch-per-source` may be missing.
    Landed,
}
