//! Repositories in a workspace, by its own git.

pub(crate) mod merge;

use std::time::Duration;

use hivekeep_git as git;
use hivekeep_git::{
    CallCredential, CloneRequest, CommitRequest, DiffRequest, FetchRef, FetchRequest, Git, GitUrl,
    PushRequest,
    api::{GitCloned, GitCommitted, GitDiffed, GitFetched, GitPushed, GitStatusResult},
};
use hivekeep_kernel::{CallCx, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    commands::{api::MAX_TIMEOUT_SECS, env::environment, user::other_than_root},
    state::Workspace,
};

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
    /// Whom to run as, `USER[:GROUP]`. Default: the image's user.
    pub user: Option<String>,
    /// The branch or tag to check out. Default: the repository's own.
    pub branch: Option<String>,
    /// Only so many commits of its history.
    pub depth: Option<u32>,
    /// Only these folders, and the files beside them on the way (a sparse checkout). Default: all.
    #[schemars(length(max = MAX_SPARSE_PATHS))]
    #[serde(default)]
    pub sparse_paths: Vec<String>,
    /// Credential for the server, for this clone alone.
    pub credential: Option<CallCredential>,
    /// Wall-clock limit in seconds, 1 to 86400.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "clone_timeout")]
    pub timeout_secs: u64,
}

/// Folders of one sparse checkout.
const MAX_SPARSE_PATHS: usize = 64;

fn clone_timeout() -> u64 {
    300
}

/// Fetch from a remote of a repository in a workspace; its work tree and its own branches stay as
/// they are. Give one of `branch`, `tag` and `commit`, or none for what the remote is configured
/// for. A server that asks who one is gets `credential`, or what the operator configured for it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitFetch {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace.
    pub path: String,
    /// The remote, by its name.
    #[serde(default = "origin")]
    pub remote: String,
    /// A branch of the remote.
    pub branch: Option<String>,
    /// A tag of the remote.
    pub tag: Option<String>,
    /// A commit, by its whole hash; not every server gives it out.
    pub commit: Option<String>,
    /// Leave the remote's branches and the tags in the repository as they are, too: the commit is FETCH_HEAD alone.
    #[serde(default)]
    pub keep_refs: bool,
    /// Only so many commits of its history.
    pub depth: Option<u32>,
    /// Credential for the remote's server, for this fetch alone.
    pub credential: Option<CallCredential>,
    /// Wall-clock limit in seconds, 1 to 86400.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "clone_timeout")]
    pub timeout_secs: u64,
}

impl GitFetch {
    fn what(&self) -> Result<Option<FetchRef>, ToolError> {
        match (self.branch.clone(), self.tag.clone(), self.commit.clone()) {
            (None, None, None) => Ok(None),
            (Some(name), None, None) => Ok(Some(FetchRef::Branch(name))),
            (None, Some(name), None) => Ok(Some(FetchRef::Tag(name))),
            (None, None, Some(hash)) => Ok(Some(FetchRef::Commit(hash))),
            _ => Err(ToolError::invalid("only one of branch, tag and commit can be fetched")),
        }
    }
}

/// Show what is changed, staged, new or in conflict in a repository of a workspace, and
/// how its branch stands to the one it follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitStatus {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// A folder of the repository. A relative path begins at /workspace. Default: /workspace.
    pub path: Option<String>,
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
    /// Name of author and committer, with author_email. Default: that of the repository.
    pub author_name: Option<String>,
    /// E-mail address of author and committer, with author_name.
    pub author_email: Option<String>,
}

fn yes() -> bool {
    true
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
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "push_timeout")]
    pub timeout_secs: u64,
    /// Credential for the remote's server, for this push alone.
    pub credential: Option<CallCredential>,
}

fn origin() -> String {
    "origin".to_owned()
}

fn push_timeout() -> u64 {
    120
}

/// Show what differs in a repository of a workspace: the work tree from what is
/// staged, or what is staged from the last commit. New files that were never
/// staged are not part of it. Credentials in it are hidden, and counted.
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

tools! { pub FAMILY: "git" for Workspace, addressed workspace by workspace_id;
    git_clone: GitClone => GitCloned = on_git_clone {
        title: "Clone a repository", rate: RateClass::Exec, open_world: true, timeout_secs: 330,
    };
    git_fetch: GitFetch => GitFetched = on_git_fetch {
        title: "Fetch from a remote", rate: RateClass::Exec, open_world: true, timeout_secs: 330,
    };
    git_status: GitStatus => GitStatusResult = on_git_status {
        title: "Status of a repository", effect: Read, rate: RateClass::Exec, timeout_secs: 150,
    };
    git_commit: GitCommit => GitCommitted = on_git_commit {
        title: "Commit changes", rate: RateClass::Exec, timeout_secs: 300,
    };
    git_push: GitPush => GitPushed = on_git_push {
        title: "Push a branch", effect: Destroy, risk: Risk::Medium, rate: RateClass::Exec,
        open_world: true, timeout_secs: 150,
    };
    git_diff: GitDiff => GitDiffed = on_git_diff {
        title: "Show what differs", effect: Read, rate: RateClass::Exec, timeout_secs: 150,
    };
}

/// The guest's git in a folder, once there is a link, as the owner of the repository there.
///
/// # Errors
/// When the workspace does not run.
fn opened(
    state: &Workspace,
    cx: &CallCx,
    dir: String,
) -> Result<impl Future<Output = Result<Git, ToolError>> + Send + use<>, ToolError> {
    let env = environment(&state.ledger, cx.trace.as_ref(), Default::default())?;
    let link = state.guest(cx)?;
    let ca_file = state.handle.shared.git.ca_file.clone();
    Ok(async move { Ok(Git::new(link.await?, dir, env).trusting(ca_file)) })
}

fn on_git_clone(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitClone,
) -> Result<Reply<GitCloned>, ToolError> {
    let url = GitUrl::parse(input.url.expose())?;
    let login = state.handle.shared.git.login_for(&url, input.credential.as_ref())?;
    let request = CloneRequest {
        url,
        login,
        path: git::path(input.path.as_deref())?,
        branch: input.branch,
        depth: input.depth,
        sparse_paths: input.sparse_paths,
        timeout: Duration::from_secs(input.timeout_secs),
    };
    request.check()?;
    let user = other_than_root(&state.ledger, input.user)?;
    let (git, cx) = (opened(state, cx, "/".to_owned())?, cx.clone());
    Ok(Reply::later(async move {
        cx.guard(async { git::clone(git.await?.as_user(user), request).await }).await
    }))
}

fn on_git_fetch(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitFetch,
) -> Result<Reply<GitFetched>, ToolError> {
    let request = FetchRequest {
        what: input.what()?,
        keep_refs: input.keep_refs,
        remote: input.remote,
        depth: input.depth,
        credential: input.credential,
        timeout: Duration::from_secs(input.timeout_secs),
    };
    request.check()?;
    let (git, cx) = (opened(state, cx, git::path(Some(&input.path))?)?, cx.clone());
    let options = state.handle.shared.git.clone();
    Ok(Reply::later(async move {
        cx.guard(async { git::fetch(git.await?, &options, request).await }).await
    }))
}

fn on_git_status(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitStatus,
) -> Result<Reply<GitStatusResult>, ToolError> {
    let (git, cx) = (opened(state, cx, git::path(input.path.as_deref())?)?, cx.clone());
    Ok(Reply::later(async move { cx.guard(async { git::status(&git.await?).await }).await }))
}

fn on_git_commit(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitCommit,
) -> Result<Reply<GitCommitted>, ToolError> {
    let GitCommit { path, message, add_all, author_name, author_email, .. } = input;
    let request = CommitRequest { message, add_all, author_name, author_email };
    request.check()?;
    let (git, cx) = (opened(state, cx, git::path(Some(&path))?)?, cx.clone());
    Ok(Reply::later(
        async move { cx.guard(async { git::commit(git.await?, request).await }).await },
    ))
}

fn on_git_push(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitPush,
) -> Result<Reply<GitPushed>, ToolError> {
    let request = PushRequest {
        remote: input.remote,
        branch: input.branch,
        force: input.force,
        set_upstream: input.set_upstream,
        credential: input.credential,
        timeout: Duration::from_secs(input.timeout_secs),
    };
    request.check()?;
    let (git, cx) = (opened(state, cx, git::path(Some(&input.path))?)?, cx.clone());
    let options = state.handle.shared.git.clone();
    Ok(Reply::later(async move {
        cx.guard(async { git::push(git.await?, &options, request).await }).await
    }))
}

fn on_git_diff(
    state: &mut Workspace,
    cx: &CallCx,
    input: GitDiff,
) -> Result<Reply<GitDiffed>, ToolError> {
    let GitDiff { path, staged, stat, file_path, max_bytes, .. } = input;
    let request = DiffRequest { staged, stat, file_path, max_bytes };
    request.check()?;
    let (git, cx) = (opened(state, cx, git::path(Some(&path))?)?, cx.clone());
    Ok(Reply::later(async move { cx.guard(async { git::diff(&git.await?, request).await }).await }))
}
