//! Commit operation, behind the tool `git_commit`.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};

use super::{Git, names};
use crate::api::{CommitStatus, GitCommitted};
use crate::codes;

/// Maximum length of a message; it is one argument.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Maximum time, including hooks and staging of many files.
const LIMIT: Duration = Duration::from_secs(240);
const OUTPUT_BYTES: u64 = 256 * 1024;
/// Maximum number of conflicts that are named.
const NAMED: usize = 50;

/// Parameters of a commit.
pub struct CommitRequest {
    pub message: String,
    pub add_all: bool,
    pub author_name: Option<String>,
    pub author_email: Option<String>,
}

impl CommitRequest {
    /// # Errors
    ///
    /// `invalid_input`.
    pub fn check(&self) -> Result<(), ToolError> {
        if self.message.trim().is_empty() || self.message.contains('\0') {
            return Err(ToolError::invalid("message is empty or contains a NUL byte"));
        }
        if self.message.len() > MAX_MESSAGE_BYTES {
            return Err(ToolError::invalid("message is longer than 65536 bytes"));
        }
        self.author().map(drop)
    }

    fn author(&self) -> Result<Option<(&str, &str)>, ToolError> {
        match (&self.author_name, &self.author_email) {
            (Some(name), Some(email)) => Ok(Some((
                names::author("author_name", name)?,
                names::author("author_email", email)?,
            ))),
            (None, None) => Ok(None),
            _ => Err(ToolError::invalid("author_name and author_email go together")
                .next("give both, or neither to use the repository's configuration")),
        }
    }
}

/// Commits what is staged, after staging everything if asked to.
///
/// # Errors
/// `not_a_repository` and similar, `identity_missing`, `conflicts_unresolved`, `commit_refused` by
/// a hook, `git_commit_failed`.
pub async fn commit(mut git: Git, request: CommitRequest) -> Result<GitCommitted, ToolError> {
    git.check_work_tree().await?;
    if let Some((name, email)) = request.author()? {
        for (variable, value) in [
            ("GIT_AUTHOR_NAME", name),
            ("GIT_AUTHOR_EMAIL", email),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_COMMITTER_EMAIL", email),
        ] {
            git.set(variable, value);
        }
    }
    resolved(&git).await?;
    if request.add_all {
        let added = git.run_for(&["add", "--all"], LIMIT, OUTPUT_BYTES).await?;
        if !added.ok() {
            return Err(git.failed(
                codes::GIT_COMMIT_FAILED,
                "the changes could not be staged",
                &added,
            ));
        }
    }
    // Exit code 1 means a difference; concluding a merge needs none.
    let same = git.run(&["diff", "--cached", "--quiet"]).await?;
    let merging = git.line(&["rev-parse", "--quiet", "--verify", "MERGE_HEAD"]).await?.is_some();
    if same.ok() && !merging {
        return committed(&git, CommitStatus::NothingToCommit, String::new()).await;
    }
    identified(&git).await?;
    let message = format!("--message={}", request.message);
    let done = git.run_for(&["commit", "--no-edit", &message], LIMIT, OUTPUT_BYTES).await?;
    match done.exit_code {
        0 => {
            let summary = git.hider.words(&done.stdout);
            committed(&git, CommitStatus::Committed, summary).await
        }
        1 => Err(git
            .failed(codes::COMMIT_REFUSED, "a hook of the repository refused the commit", &done)
            .detail("stdout", git.hider.words(&done.stdout))
            .next("the output says what the hook wants; what was staged is still staged")),
        _ => Err(git
            .failed(codes::GIT_COMMIT_FAILED, "git could not commit", &done)
            .next("git's output says why; what was staged is still staged")),
    }
}

async fn committed(
    git: &Git,
    status: CommitStatus,
    summary: String,
) -> Result<GitCommitted, ToolError> {
    Ok(GitCommitted {
        status,
        commit_sha: git.head().await?,
        short_sha: git.line(&["rev-parse", "--quiet", "--verify", "--short", "HEAD"]).await?,
        branch: git.branch().await?,
        summary,
    })
}

/// # Errors
///
/// `conflicts_unresolved`: staging these files would commit their conflict markers.
async fn resolved(git: &Git) -> Result<(), ToolError> {
    let done = git.run(&["diff", "--name-only", "--diff-filter=U", "-z"]).await?;
    let paths: Vec<String> = done
        .stdout
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .take(NAMED)
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    if paths.is_empty() {
        return Ok(());
    }
    let message = format!("{} files have conflicts that are not resolved", paths.len());
    Err(ToolError::new(Layer::Guest, codes::CONFLICTS_UNRESOLVED, message)
        .next("edit them, stage each by exec with `git add -- FILE`, then commit; or `git merge --abort`")
        .detail("files", paths))
}

/// # Errors
///
/// `identity_missing`.
async fn identified(git: &Git) -> Result<(), ToolError> {
    for who in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
        let done = git.run(&["var", who]).await?;
        if !done.ok() {
            return Err(git
                .failed(codes::IDENTITY_MISSING, "git does not know who commits", &done)
                .next(
                    "give author_name and author_email, or set user.name and user.email by exec",
                ));
        }
    }
    Ok(())
}
