//! Repositories in a workspace, by its own git.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Handle, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    git::{self, CloneWish, CommitWish, DiffWish, GitUrl, Given, PushWish},
    workspace::Workspace,
};

/// Longest that a clone or a push may be given.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;

/// Clone a repository in a running workspace. A server that asks who one is gets
/// `credential`, or what the operator configured for it; neither is ever written
/// down in the workspace. A password in `url` is used the same way, and is not in
/// the remote that the clone has.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitClone {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// The repository: https://, http://, git://, ssh://user@host/path, user@host:path or file:///path.
    #[schemars(with = "String")]
    pub url: hivekeep_protocol::Secret,
    /// Where to put it; it has to be empty or absent. A relative path begins at /workspace. Default: /workspace.
    pub path: Option<String>,
    /// The branch or tag to check out. Default: the repository's own.
    pub branch: Option<String>,
    /// Only so many commits of its history.
    pub depth: Option<u32>,
    /// Who one is for the server, for this clone alone.
    pub credential: Option<Given>,
    /// Wall-clock limit in seconds, 1 to 86400.
    #[serde(default = "clone_timeout")]
    pub timeout_secs: u64,
}

fn clone_timeout() -> u64 {
    300
}

/// A clone.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitCloned {
    /// Always true: a clone that failed is an error.
    pub success: bool,
    /// Where it is.
    pub path: String,
    /// The commit that is checked out; null when the repository has none yet.
    pub commit_sha: Option<String>,
    /// Where it came from, without credentials.
    pub url: String,
    /// The branch that is checked out; null where a tag is.
    pub branch: Option<String>,
    /// The depth that was asked for.
    pub depth: Option<u32>,
}

/// What is changed, staged, new or in conflict in a repository of a workspace, and
/// how its branch stands to the one it follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitStatus {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace. Default: /workspace.
    pub path: Option<String>,
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

/// Commit the changes of a repository in a workspace. Where there is nothing to
/// commit the answer says so. Conflicts that are not resolved are refused.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitCommit {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace.
    pub path: String,
    /// The commit's message, as it is.
    pub message: String,
    /// Stage every change of the whole work tree first, new and removed files included.
    #[serde(default = "yes")]
    pub add_all: bool,
    /// Who commits, with author_email. Default: as the repository is configured.
    pub author_name: Option<String>,
    /// Who commits, with author_name.
    pub author_email: Option<String>,
}

fn yes() -> bool {
    true
}

/// What became of a commit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GitCommitted {
    /// What was done.
    pub status: CommitStatus,
    /// The commit that is checked out now; null before the first.
    pub commit_sha: Option<String>,
    /// Its short name.
    pub short_sha: Option<String>,
    /// The branch; null where none is checked out.
    pub branch: Option<String>,
    /// What git says of it.
    pub summary: String,
}

/// Whether there is a new commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitStatus {
    /// There is.
    Committed,
    /// Nothing is changed, or nothing is staged and `add_all` is false.
    NothingToCommit,
}

/// Push a branch of a repository in a workspace to the branch of the same name. A
/// server that asks who one is gets `credential`, or what the operator configured
/// for it; neither is ever written down in the workspace. With the operator's the
/// repository's hooks do not run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitPush {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace.
    pub path: String,
    /// The remote, by its name.
    #[serde(default = "origin")]
    pub remote: String,
    /// The branch. Default: the one that is checked out.
    pub branch: Option<String>,
    /// Replace what the remote has, even if that loses commits there.
    #[serde(default)]
    pub force: bool,
    /// Have the branch follow the remote's from now on.
    #[serde(default)]
    pub set_upstream: bool,
    /// Wall-clock limit in seconds, 1 to 86400.
    #[serde(default = "push_timeout")]
    pub timeout_secs: u64,
    /// Who one is for the remote's server, for this push alone.
    pub credential: Option<Given>,
}

fn origin() -> String {
    "origin".to_owned()
}

fn push_timeout() -> u64 {
    120
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
    /// What it did, ref by ref.
    pub refs: Vec<PushedRef>,
    /// What git and the server said, without credentials.
    pub output: String,
}

/// One ref of a remote after a push.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PushedRef {
    /// The remote's ref.
    pub to: String,
    /// `fast_forward`, `new`, `forced`, `deleted`, `up_to_date` or `rejected`.
    pub status: String,
    /// In git's words.
    pub summary: String,
    /// rejected: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Show what differs in a repository of a workspace: the work tree from what is
/// staged, or what is staged from the last commit. New files that were never
/// staged are no part of it. Credentials in it are hidden, and counted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitDiff {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace.
    pub path: String,
    /// Show what is staged instead of what is not.
    #[serde(default)]
    pub staged: bool,
    /// Show how many lines changed in which files instead of the lines.
    #[serde(default)]
    pub stat: bool,
    /// Only this file or folder, relative to `path`.
    pub file_path: Option<String>,
    /// Bytes to return, 1 to 2097152; what is beyond is cut with a notice.
    #[serde(default = "diff_bytes")]
    pub max_bytes: u64,
}

fn diff_bytes() -> u64 {
    65_536
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

tools! { pub FAMILY: "git" for Workspace, addressed workspace by workspace_id;
    git_clone: GitClone => GitCloned {
        title: "Clone a repository", rate: RateClass::Exec, open_world: true, timeout_secs: 330,
    };
    git_status: GitStatus => GitStatusResult {
        title: "Status of a repository", effect: Read, rate: RateClass::Exec, timeout_secs: 150,
    };
    git_commit: GitCommit => GitCommitted {
        title: "Commit changes", rate: RateClass::Exec, timeout_secs: 300,
    };
    git_push: GitPush => GitPushed {
        title: "Push a branch", effect: Destroy, risk: Risk::Medium, rate: RateClass::Exec,
        open_world: true, timeout_secs: 150,
    };
    git_diff: GitDiff => GitDiffed {
        title: "Show what differs", effect: Read, rate: RateClass::Exec, timeout_secs: 150,
    };
}

fn limit(timeout_secs: u64) -> Result<Duration, ToolError> {
    match (1..=MAX_TIMEOUT_SECS).contains(&timeout_secs) {
        true => Ok(Duration::from_secs(timeout_secs)),
        false => Err(ToolError::invalid("timeout_secs must be 1 to 86400")),
    }
}

impl Handle<GitClone> for Workspace {
    fn handle_tool(&mut self, cx: &CallCx, input: GitClone) -> Result<Reply<GitCloned>, ToolError> {
        self.authorize(cx)?;
        let url = GitUrl::parse(input.url.expose())?;
        let login = self.login_for(&url, input.credential.as_ref())?;
        let wish = CloneWish {
            url,
            login,
            path: git::path(input.path.as_deref())?,
            branch: input.branch,
            depth: input.depth,
            timeout: limit(input.timeout_secs)?,
        };
        wish.check()?;
        let (git, cx) = (self.git(cx, "/".to_owned())?, cx.clone());
        Ok(Reply::later(
            async move { cx.guard(async { git::clone(git.await?, wish).await }).await },
        ))
    }
}

impl Handle<GitStatus> for Workspace {
    fn handle_tool(
        &mut self,
        cx: &CallCx,
        input: GitStatus,
    ) -> Result<Reply<GitStatusResult>, ToolError> {
        self.authorize(cx)?;
        let (git, cx) = (self.git(cx, git::path(input.path.as_deref())?)?, cx.clone());
        Ok(Reply::later(async move { cx.guard(async { git::status(&git.await?).await }).await }))
    }
}

impl Handle<GitCommit> for Workspace {
    fn handle_tool(
        &mut self,
        cx: &CallCx,
        input: GitCommit,
    ) -> Result<Reply<GitCommitted>, ToolError> {
        self.authorize(cx)?;
        let GitCommit { path, message, add_all, author_name, author_email, .. } = input;
        let wish = CommitWish { message, add_all, author_name, author_email };
        wish.check()?;
        let (git, cx) = (self.git(cx, git::path(Some(&path))?)?, cx.clone());
        Ok(Reply::later(
            async move { cx.guard(async { git::commit(git.await?, wish).await }).await },
        ))
    }
}

impl Handle<GitPush> for Workspace {
    fn handle_tool(&mut self, cx: &CallCx, input: GitPush) -> Result<Reply<GitPushed>, ToolError> {
        self.authorize(cx)?;
        let wish = PushWish {
            remote: input.remote,
            branch: input.branch,
            force: input.force,
            set_upstream: input.set_upstream,
            credential: input.credential,
            timeout: limit(input.timeout_secs)?,
        };
        wish.check()?;
        let (git, cx) = (self.git(cx, git::path(Some(&input.path))?)?, cx.clone());
        let options = self.git_options();
        Ok(Reply::later(async move {
            cx.guard(async { git::push(git.await?, &options, wish).await }).await
        }))
    }
}

impl Handle<GitDiff> for Workspace {
    fn handle_tool(&mut self, cx: &CallCx, input: GitDiff) -> Result<Reply<GitDiffed>, ToolError> {
        self.authorize(cx)?;
        let GitDiff { path, staged, stat, file_path, max_bytes, .. } = input;
        let wish = DiffWish { staged, stat, file_path, max_bytes };
        wish.check()?;
        let (git, cx) = (self.git(cx, git::path(Some(&path))?)?, cx.clone());
        Ok(Reply::later(
            async move { cx.guard(async { git::diff(&git.await?, wish).await }).await },
        ))
    }
}
