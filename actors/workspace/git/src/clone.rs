//! Clone operation, behind the tool `git_clone`.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, LinkError, link_error};
use hivekeep_protocol::{Argv, GuestCode, ListFolder, RunCommand};

use super::{
    Git, GitUrl, Login,
    run::{AuthenticationRecord, GitDone},
};
use crate::api::GitCloned;
use crate::codes;

/// Maximum time to check the destination, or the server's branches.
const LOOK: Duration = Duration::from_secs(30);

/// Prints the first folder above `$1` that is there, if nothing can be made in it.
const CLOSED: &str =
    r#"p=${1%/}; until [ -d "$p" ]; do p=${p%/*}; p=${p:-/}; done; [ -w "$p" ] || echo "$p""#;

/// Output of a sparse checkout that is read.
const SPARSE_BYTES: u64 = 64 * 1024;

/// Validated parameters of a clone.
pub struct CloneRequest {
    pub url: GitUrl,
    pub login: Option<Login>,
    /// Absolute path of the destination.
    pub path: String,
    pub branch: Option<String>,
    pub depth: Option<u32>,
    /// Folders to check out; empty is all.
    pub sparse_paths: Vec<String>,
    pub timeout: Duration,
}

impl CloneRequest {
    /// # Errors
    ///
    /// `invalid_input` for an invalid branch, depth or folder.
    pub fn check(&self) -> Result<(), ToolError> {
        if self.depth == Some(0) {
            return Err(ToolError::invalid("depth must be at least 1"));
        }
        self.sparse_paths.iter().try_for_each(|path| super::names::sparse_path(path).map(drop))?;
        self.branch.as_deref().map_or(Ok(()), |branch| super::names::branch(branch).map(drop))
    }
}

/// Clones a repository. `git` runs in a folder that exists in any case.
///
/// # Errors
/// `destination_not_empty`, `permission_denied`, `authentication_required`, `authentication_failed`,
/// `branch_not_found`, `git_clone_failed`.
pub async fn clone(mut git: Git, request: CloneRequest) -> Result<GitCloned, ToolError> {
    free(&git, &request.path).await?;
    clone_anew(&mut git, &request).await?;
    let git = git.at(request.path.clone());
    Ok(GitCloned {
        success: true,
        commit_sha: git.head().await?,
        branch: git.branch().await?,
        path: request.path,
        url: request.url.plain().to_owned(),
        depth: request.depth,
    })
}

/// Runs the clone itself, into a folder that git accepts. Of a sparse one the rest is checked out in
/// a second step; what fails then leaves the clone there.
///
/// # Errors
/// See [`clone`].
pub async fn clone_anew(git: &mut Git, request: &CloneRequest) -> Result<(), ToolError> {
    if let Some(secret) = request.url.secret() {
        git.hider.add(&secret);
    }
    if let Some(user) = git.user() {
        let closed = script(git, user, [CLOSED, "sh", &request.path]).await;
        if !closed.is_empty() {
            let message = format!("user {user} may not write in {closed}");
            return Err(ToolError::new(Layer::Guest, codes::PERMISSION_DENIED, message).next(
                "give a `path` that is the user's, another `user`, or the folder to the user: by exec with user root, chown USER PATH",
            ));
        }
    }
    let depth = request.depth.map(|depth| format!("--depth={depth}"));
    let branch = request.branch.as_ref().map(|branch| format!("--branch={branch}"));
    let mut args = vec!["clone", "--no-progress"];
    args.extend(depth.as_deref());
    args.extend(branch.as_deref());
    args.extend((!request.sparse_paths.is_empty()).then_some("--sparse"));
    args.extend(["--", request.url.plain(), &request.path]);
    let (done, asked) = git.ask(&args, request.login.as_ref(), request.timeout).await?;
    if !done.ok() {
        return Err(failure(git, request, &done, &asked).await);
    }
    if request.sparse_paths.is_empty() {
        return Ok(());
    }
    let mut args = vec!["-C", &request.path, "sparse-checkout", "set", "--cone"];
    args.extend(request.sparse_paths.iter().map(String::as_str));
    let set = git.run_for(&args, request.timeout, SPARSE_BYTES).await?;
    if set.ok() {
        return Ok(());
    }
    let message = "the folders of `sparse_paths` could not be checked out";
    Err(git.failed(codes::GIT_CLONE_FAILED, message, &set).next("git's output says why"))
}

/// Runs a script with its `$0` and `$1` as a user. Returns the line that it prints; nothing
/// where it cannot run, as git cannot then.
async fn script(git: &Git, user: &str, words: [&str; 3]) -> String {
    let argv = ["sh", "-c"].iter().chain(&words).map(|word| (*word).to_owned()).collect();
    let exec = RunCommand {
        argv: Argv::Direct(argv).as_user(user),
        env: Vec::new(),
        workdir: Some("/".to_owned()),
        timeout_ms: LOOK.as_secs() * 1000,
        max_output_bytes: 4096,
    };
    let output = git.link().exec(exec, CallTerms::at_most(LOOK), |_, _| {}).await;
    let printed = output.map(|output| output.stdout.text().text).unwrap_or_default();
    printed.lines().next().unwrap_or_default().to_owned()
}

/// # Errors
///
/// `destination_not_empty`.
async fn free(git: &Git, path: &str) -> Result<(), ToolError> {
    let look = ListFolder { path: path.to_owned(), after: None, limit: 1 };
    let what = match git.link().ask(look, CallTerms::at_most(LOOK)).await {
        Ok(listed) if listed.entries.is_empty() => return Ok(()),
        Ok(_) => "contains files",
        Err(LinkError::Guest(error)) if error.code == GuestCode::NotFound => return Ok(()),
        Err(LinkError::Guest(error)) if error.code == GuestCode::NotADirectory => "is a file",
        Err(error) => return Err(link_error(error)),
    };
    Err(ToolError::new(Layer::Guest, codes::DESTINATION_NOT_EMPTY, format!("{path} {what}"))
        .next("give another `path`, or remove what is there"))
}

async fn failure(
    git: &mut Git,
    request: &CloneRequest,
    done: &GitDone,
    asked: &AuthenticationRecord,
) -> ToolError {
    if let Some(error) = git.not_let_in(done, asked) {
        return error;
    }
    if let Some(branch) = &request.branch
        && lacks(git, request, branch).await
    {
        let message = format!("{} has no branch or tag `{branch}`", request.url.plain());
        return git
            .failed(codes::BRANCH_NOT_FOUND, message, done)
            .next("leave `branch` out for the repository's own, or give one that it has");
    }
    let message = format!("{} could not be cloned", request.url.plain());
    git.failed(codes::GIT_CLONE_FAILED, message, done)
        .next("git's output says why: the address, the network policy of the workspace, the server or its certificate (one of your own: git.ca_file on the host, or GIT_SSL_CAINFO by set_env)")
}

/// True if the server answers and has no such branch, which git reports by an exit code of its own.
async fn lacks(git: &mut Git, request: &CloneRequest, branch: &str) -> bool {
    let (head, tag) = (format!("refs/heads/{branch}"), format!("refs/tags/{branch}"));
    let args = ["ls-remote", "--exit-code", "--", request.url.plain(), &head, &tag];
    let looked = git.ask(&args, request.login.as_ref(), LOOK).await;
    looked.is_ok_and(|(done, _)| done.exit_code == 2)
}
