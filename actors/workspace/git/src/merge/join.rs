//! Strategy `branch-per-source`: the source's commits unchanged on a branch of their own, joined by
//! a merge commit.

use hivekeep_kernel::{Layer, ToolError};

use super::{
    conflict::{self, Failure},
    replay::{Applied, Tried},
    repo::{Repo, failed},
};
use crate::codes;

/// Branch of a source in the target.
#[derive(Debug)]
pub(super) struct Branch {
    /// Name without `refs/heads/`.
    pub(super) name: String,
    /// Commit that it points to after the merge.
    tip: String,
    /// Commit that it pointed to before.
    old: Option<String>,
}

impl Branch {
    /// Plans the branch of a source, if it can be moved to its new commit.
    ///
    /// # Errors
    /// Inner error: `branch_diverged` or `branch_checked_out`.
    pub(super) async fn plan(target: &Repo<'_>, source: &str, tip: &str) -> Tried<Self> {
        let name = format!("hivekeep/{source}");
        let full = format!("refs/heads/{name}");
        let old = target.resolve(&full).await?;
        let refused = |code, message: String| {
            let error = ToolError::new(Layer::Guest, code, message)
                .next("rename or delete the branch in the target, or use another strategy");
            Ok(Err(Failure::Refused(error)))
        };
        if let Some(old) = old.as_deref().filter(|old| *old != tip) {
            if !target.contains(tip, old).await? {
                let message = format!("branch {name} of the target has other commits");
                return refused(codes::BRANCH_DIVERGED, message);
            }
            let at = target.line(&["for-each-ref", "--format=%(worktreepath)", &full]).await?;
            if !at.is_empty() {
                return refused(codes::BRANCH_CHECKED_OUT, format!("branch {name} is checked out"));
            }
        }
        Ok(Ok(Self { name, tip: tip.to_owned(), old }))
    }

    /// Makes or moves the branch.
    ///
    /// # Errors
    /// `git_failed`, also when it was moved by another meanwhile.
    pub(super) async fn make(&self, target: &Repo<'_>) -> Result<(), ToolError> {
        let full = format!("refs/heads/{}", self.name);
        let old = self.old.as_deref().unwrap_or_default();
        target.must(&["update-ref", "--no-deref", &full, &self.tip, old]).await.map(drop)
    }
}

/// Joins `tip` to HEAD by a merge commit, also where a fast-forward is possible.
pub(super) async fn join(scratch: &Repo<'_>, tip: &str, message: &str) -> Tried<Applied> {
    let commits = scratch.count(&["rev-list", "--count", &format!("HEAD..{tip}")]).await?;
    let args = [
        "merge",
        "--quiet",
        "--no-ff",
        "--no-edit",
        "--no-stat",
        "--no-verify",
        "--no-autostash",
        "-m",
        message,
        tip,
    ];
    let merged = scratch.run(&args).await?;
    if merged.ok() {
        return Ok(Ok(Applied { commits, ..Applied::default() }));
    }
    Ok(Err(match conflict::read(scratch, None).await? {
        Some(conflict) => Failure::Conflict(conflict),
        None => failed(&args, &merged).into(),
    }))
}
