//! Refresh from the remote: fetched into the repository, checked out in a twin of its tree, exchanged.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError, fault_point};
use serde::Deserialize;
use serde_json::json;

use crate::{
    binding::{GitRefKind, RepositoryOperation},
    clone::{cloned, in_place},
    codes,
    machine::{GitMachine, Reach, WorkTree},
    operation::{Finished, RepositoryJob},
    repositories::{Repositories, RepositoryResult, find, not_found},
    tools::{RepositoryRefresh, RepositoryRefreshed},
};

/// Makes a twin of the tree, of hard links: git replaces files and writes into none, except into its
/// logs, which are copied. Then checks the commit out there, which git refuses where uncommitted
/// changes are in the way. The remote's branch moves in the twin, so that a refresh that fails leaves
/// the branches as they were.
const CHECK_OUT: &str = "\
    new=\".$LABEL.new\"; rm -rf \"$new\"\n\
    if ! cp -al \"$LABEL\" \"$new\" 2>/dev/null; then rm -rf \"$new\"; cp -a \"$LABEL\" \"$new\" || exit 1; fi\n\
    rm -rf \"$new/.git/logs\"\n\
    if [ -d \"$LABEL/.git/logs\" ]; then cp -a \"$LABEL/.git/logs\" \"$new/.git/logs\" || exit 1; fi\n\
    cd \"$new\" || exit 1\n\
    set -- git -c core.hooksPath=/dev/null -c core.fsmonitor=false checkout --quiet $FORCE\n\
    if [ -z \"$BRANCH\" ]; then exec \"$@\" --detach \"$SHA\" --; fi\n\
    \"$@\" -B \"$BRANCH\" \"$SHA\" -- && git update-ref \"refs/remotes/origin/$BRANCH\" \"$SHA\"";

/// Commit before a refresh, and whether the tree was updated.
pub(crate) struct Refreshed {
    pub(crate) before: Option<String>,
    pub(crate) updated: bool,
}

impl Repositories {
    pub(crate) async fn refresh(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryRefresh,
    ) -> RepositoryResult<RepositoryRefreshed> {
        let (asked, operation) =
            (input.binding_id, RepositoryOperation::Refresh { discard: input.discard });
        let done =
            self.operate(&cx, &asked, operation, input.credential, refreshed_or_cloned).await?;
        let owner = self.sessions.caller(cx.session)?;
        let (id, log) = find(&self.logs(), owner, &asked)?;
        let state = log.state().ok_or_else(|| not_found(&asked))?;
        Ok(RepositoryRefreshed {
            success: true,
            updated: done.updated,
            previous_commit_sha: done.before,
            binding: self.row(id, &state),
        })
    }
}

/// Refreshes, or clones what never was.
pub(crate) fn refreshed_or_cloned(
    job: Arc<RepositoryJob>,
) -> BoxFuture<'static, RepositoryResult<Finished<Refreshed>>> {
    async move {
        match job.binding.begun.map(|begun| begun.operation) {
            Some(RepositoryOperation::Refresh { discard }) => refreshed(&job, discard).await,
            _ => {
                let done = cloned(job).await?;
                let value = Refreshed { before: None, updated: true };
                Ok(Finished { value, commit: done.commit })
            }
        }
    }
    .boxed()
}

/// Brings the tree to what the remote has.
async fn refreshed(job: &RepositoryJob, discard: bool) -> RepositoryResult<Finished<Refreshed>> {
    let machine = GitMachine::open(job, Reach::Reads).await?;
    let done = renewed(&machine, discard).await;
    let placed = match done {
        Ok(done) if done.value.updated => in_place(job).await.map(|()| done),
        other => other,
    };
    machine.close().await;
    placed
}

/// Fetches, and makes the tree beside where something is new.
async fn renewed(machine: &GitMachine<'_>, discard: bool) -> RepositoryResult<Finished<Refreshed>> {
    #[derive(Deserialize)]
    struct Fetched {
        commit_sha: Option<String>,
    }
    let job = machine.job;
    let terms = &job.binding.terms;
    let tree: WorkTree = machine.git("git_status", &terms.label, json!({})).await?;
    if !discard {
        has_nothing_of_its_own(job, &tree)?;
    }
    job.step("fetching");
    let value = &terms.git_ref.value;
    let of = |kind: GitRefKind| (terms.git_ref.kind == kind).then_some(value);
    let by_branch = terms.git_ref.kind == GitRefKind::Branch;
    let args = json!({
        "branch": of(GitRefKind::Branch), "tag": of(GitRefKind::Tag),
        "commit": of(GitRefKind::Commit), "keep_refs": by_branch,
        "depth": terms.shallow.then_some(1),
    });
    let fetched: Fetched = machine.git_remote("git_fetch", &terms.label, args).await?;
    fault_point!("repository.after_fetch");
    let before = tree.commit_sha;
    let updated = fetched.commit_sha != before || (discard && tree.dirty);
    if updated {
        job.step("checking out");
        let env = json!({
            "SHA": fetched.commit_sha, "BRANCH": of(GitRefKind::Branch).map_or("", |name| name),
            "FORCE": if discard { "--force" } else { "" },
        });
        let checked_out = machine.sh(CHECK_OUT, env).await?;
        if checked_out.exit_code != 0 {
            let message = "the new tree could not be checked out; the old one is as it was";
            return Err(ToolError::new(Layer::Guest, codes::REFRESH_NOT_APPLIED, message)
                .detail("output", checked_out.stderr)
                .next("git's output says what is in the way; `discard` gives local changes up"));
        }
        fault_point!("repository.after_checkout");
    }
    Ok(Finished { value: Refreshed { before, updated }, commit: fetched.commit_sha })
}

/// # Errors
///
/// `repository_diverged` where a refresh would take commits or a branch away.
fn has_nothing_of_its_own(job: &RepositoryJob, tree: &WorkTree) -> RepositoryResult<()> {
    let bound = &job.binding.terms.git_ref;
    let same = match bound.kind {
        GitRefKind::Branch => tree.branch.as_ref() == Some(&bound.value) && tree.ahead == Some(0),
        GitRefKind::Tag | GitRefKind::Commit => {
            tree.detached && tree.commit_sha == job.binding.commit
        }
    };
    if same {
        return Ok(());
    }
    let message = "the repository has commits, or a branch, that the remote's would replace";
    Err(ToolError::new(Layer::Actor, codes::REPOSITORY_DIVERGED, message)
        .detail("branch", tree.branch.clone())
        .detail("commit_sha", tree.commit_sha.clone())
        .detail("ahead", tree.ahead)
        .next("push with aegis.git.push, or refresh with `discard`, which gives them up"))
}
