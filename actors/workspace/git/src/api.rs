//! Result types of the git tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A clone.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitCloned {
    /// Always true: a clone that failed is an error.
    pub success: bool,
    /// Folder of the clone in the workspace.
    pub path: String,
    /// The commit that is checked out; null when the repository has none yet.
    pub commit_sha: Option<String>,
    /// Address of the repository, without credentials.
    pub url: String,
    /// The branch that is checked out; null where a tag is.
    pub branch: Option<String>,
    /// The depth that was asked for.
    pub depth: Option<u32>,
}

/// A fetch. The work tree is as before.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitFetched {
    /// Always true: a fetch that failed is an error.
    pub success: bool,
    /// The remote.
    pub remote: String,
    /// The commit that was fetched, the first of several; null where the remote has none.
    pub commit_sha: Option<String>,
    /// Output of git, without credentials.
    pub output: String,
}

/// The state of a work tree. Paths are relative to its root. One that is no UTF-8 is spelled as
/// git quotes it: between `"`, with `\` and three octal digits for a byte.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GitStatusResult {
    /// The branch; null where a commit is checked out.
    pub branch: Option<String>,
    /// A commit is checked out, not a branch.
    pub detached: bool,
    /// The commit that is checked out; null before the first.
    pub commit_sha: Option<String>,
    /// The branch that this one follows.
    pub upstream: Option<String>,
    /// Commits that it has and its upstream has not; null without one to compare with.
    pub ahead: Option<u64>,
    /// Commits that its upstream has and it has not; null without one to compare with.
    pub behind: Option<u64>,
    /// Changes that the next commit would have.
    pub staged: Vec<String>,
    /// Changes that are not staged, removed files among them.
    pub modified: Vec<String>,
    /// Files, and folders of nothing else, that git does not follow yet. Folders end in `/`.
    pub untracked: Vec<String>,
    /// Files with conflicts that are not resolved.
    pub conflicted: Vec<String>,
    /// Which of the changes are renames or copies.
    pub renamed: Vec<RenamedPath>,
    /// Whether any of these lists has something.
    pub dirty: bool,
    /// There is more than is listed.
    pub truncated: bool,
}

/// A file that has another name now.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RenamedPath {
    /// The name before.
    pub from: String,
    /// The name now.
    pub to: String,
    /// Whether that is staged.
    pub staged: bool,
}

/// Result of a commit, also where there was nothing to commit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitCommitted {
    /// Whether a commit was made.
    pub status: CommitStatus,
    /// The commit that is checked out now; null before the first.
    pub commit_sha: Option<String>,
    /// The commit's hash in short.
    pub short_sha: Option<String>,
    /// The branch; null where none is checked out.
    pub branch: Option<String>,
    /// Output of `git commit`; empty when nothing was committed.
    pub summary: String,
}

/// Whether there is a new commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitStatus {
    /// A new commit was made.
    Committed,
    /// Nothing is changed, or nothing is staged and `add_all` is false.
    NothingToCommit,
}

/// A push that the remote took.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitPushed {
    /// The remote.
    pub remote: String,
    /// The branch.
    pub branch: String,
    /// Always true: a push that failed is an error.
    pub success: bool,
    /// `pushed`, or `up_to_date` when the remote had it all.
    pub status: String,
    /// Refs of the remote that the push was about, in git's order.
    pub refs: Vec<PushedRef>,
    /// Output of git and of the server, without credentials.
    pub output: String,
}

/// Ref of a remote after a push.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PushedRef {
    /// The remote's ref.
    pub to: String,
    /// `fast_forward`, `new`, `forced`, `deleted`, `up_to_date` or `rejected`.
    pub status: String,
    /// Change of the ref, in git's words.
    pub summary: String,
    /// rejected: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A diff.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitDiffed {
    /// The diff, or the table if `stat` was asked for; empty when nothing differs.
    pub diff: String,
    /// Whether it was cut; then it cannot be applied.
    pub truncated: bool,
    /// Whether it is the table.
    pub stat: bool,
    /// Bytes of all of it.
    pub total_bytes: u64,
    /// Credentials that were hidden in it; if not 0, it cannot be applied.
    pub redacted: usize,
}
