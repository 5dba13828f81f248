//! Fetch operation, behind the tool `git_fetch`.

use std::time::Duration;

use hivekeep_kernel::ToolError;

use super::{
    CallCredential, Git, GitOptions, names, push,
    run::{AuthenticationRecord, GitDone},
};
use crate::{api::GitFetched, codes};

/// Maximum time to ask the server for its refs.
const LOOK: Duration = Duration::from_secs(30);

/// Parameters of a fetch.
pub struct FetchRequest {
    pub remote: String,
    /// Ref to fetch; `None` fetches what the remote is configured for.
    pub what: Option<FetchRef>,
    /// Moves no ref of the repository: the commit is its `FETCH_HEAD` alone.
    pub keep_refs: bool,
    pub depth: Option<u32>,
    pub credential: Option<CallCredential>,
    pub timeout: Duration,
}

/// Ref of a remote, by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchRef {
    /// Branch; the remote's branch in the repository follows it, wherever it moved.
    Branch(String),
    /// Tag; a tag of this name in the repository is replaced.
    Tag(String),
    /// Commit by its whole hash, which not every server gives out.
    Commit(String),
}

impl FetchRef {
    fn refspec(&self, remote: &str, keep_refs: bool) -> String {
        match self {
            Self::Branch(name) if keep_refs => format!("refs/heads/{name}"),
            Self::Tag(name) if keep_refs => format!("refs/tags/{name}"),
            Self::Branch(name) => format!("+refs/heads/{name}:refs/remotes/{remote}/{name}"),
            Self::Tag(name) => format!("+refs/tags/{name}:refs/tags/{name}"),
            Self::Commit(hash) => hash.clone(),
        }
    }

    /// Name at the remote; `None` for a commit, which no server lists.
    fn listed(&self) -> Option<String> {
        match self {
            Self::Branch(name) => Some(format!("refs/heads/{name}")),
            Self::Tag(name) => Some(format!("refs/tags/{name}")),
            Self::Commit(_) => None,
        }
    }
}

impl FetchRequest {
    /// # Errors
    ///
    /// `invalid_input`.
    pub fn check(&self) -> Result<(), ToolError> {
        names::remote(&self.remote)?;
        if self.depth == Some(0) {
            return Err(ToolError::invalid("depth must be at least 1"));
        }
        match &self.what {
            Some(FetchRef::Branch(name) | FetchRef::Tag(name)) => names::branch(name).map(drop),
            Some(FetchRef::Commit(hash)) => names::commit(hash).map(drop),
            None if self.keep_refs => {
                Err(ToolError::invalid("keep_refs goes with one of branch, tag and commit"))
            }
            None => Ok(()),
        }
    }
}

/// Fetches from a remote; the work tree and the branches of the repository stay as they are.
///
/// # Errors
/// `not_a_repository` and similar, `remote_not_found`, `authentication_required`,
/// `authentication_failed`, `branch_not_found`, `git_fetch_failed`.
pub async fn fetch(
    mut git: Git,
    options: &GitOptions,
    request: FetchRequest,
) -> Result<GitFetched, ToolError> {
    git.check_work_tree().await?;
    let address = push::address(&git, &request.remote, &[]).await?;
    let given = request.credential.as_ref();
    let login = push::login(&mut git, options, &request.remote, given, &address)?;
    let depth = request.depth.map(|depth| format!("--depth={depth}"));
    let refspec =
        request.what.as_ref().map(|what| what.refspec(&request.remote, request.keep_refs));
    let mut args = vec!["fetch", "--no-progress", "--no-recurse-submodules"];
    args.extend(depth.as_deref());
    if request.keep_refs {
        args.extend(["--refmap=", "--no-tags"]);
    }
    args.extend(["--", request.remote.as_str()]);
    args.extend(refspec.as_deref());
    let (done, asked) = git.ask(&args, login.as_ref(), request.timeout).await?;
    if !done.ok() {
        return Err(failure(&mut git, &request, login.as_ref(), &done, &asked).await);
    }
    const FETCHED: [&str; 4] = ["rev-parse", "--quiet", "--verify", "FETCH_HEAD^{commit}"];
    let commit_sha = git.line(&FETCHED).await?;
    Ok(GitFetched { success: true, remote: request.remote, commit_sha, output: git.said(&done) })
}

async fn failure(
    git: &mut Git,
    request: &FetchRequest,
    login: Option<&super::Login>,
    done: &GitDone,
    asked: &AuthenticationRecord,
) -> ToolError {
    if let Some(error) = git.not_let_in(done, asked) {
        return error;
    }
    let remote = &request.remote;
    if let Some(name) = request.what.as_ref().and_then(FetchRef::listed) {
        // Git reports by an exit code of its own that the server answers and has no such ref.
        let args = ["ls-remote", "--exit-code", "--", remote, &name];
        let looked = git.ask(&args, login, LOOK).await;
        if looked.is_ok_and(|(done, _)| done.exit_code == 2) {
            let message = format!("`{remote}` has no `{name}` any more");
            return git
                .failed(codes::BRANCH_NOT_FOUND, message, done)
                .next("fetch another one; `git ls-remote` by exec lists them");
        }
    }
    git.failed(codes::GIT_FETCH_FAILED, format!("nothing could be fetched from `{remote}`"), done)
        .next("git's output says why: the address, the network policy of the workspace, the server or its certificate (one of your own: git.ca_file on the host, or GIT_SSL_CAINFO by set_env)")
}
