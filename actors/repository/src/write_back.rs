//! Commits, pushes and diffs of a repository's tree, each in a workspace of its own.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError};
use serde_json::{Value, json};

use crate::{
    binding::RepositoryOperation,
    bindings::RepositoryResult,
    codes,
    job::{Finished, RepositoryJob},
    machine::{GitMachine, Reach},
    refresh::WorkTree,
    repositories::Repositories,
    tools::{
        RepositoryCommit, RepositoryCommitted, RepositoryDiff, RepositoryDiffed, RepositoryPush,
        RepositoryPushed,
    },
};

/// Fails where the repository does not say who commits.
const IDENTITY: &str = "git -C \"$LABEL\" var GIT_COMMITTER_IDENT >/dev/null";

impl Repositories {
    pub(crate) async fn commit(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryCommit,
    ) -> RepositoryResult<RepositoryCommitted> {
        let asked = input.binding_id.clone();
        let work = move |job: Arc<RepositoryJob>| {
            async move {
                let machine = GitMachine::open(&job, Reach::Nothing).await?;
                let done = committed(&machine, input).await;
                machine.close().await;
                done
            }
            .boxed()
        };
        self.operate(&cx, &asked, RepositoryOperation::Commit, None, work).await
    }

    pub(crate) async fn push(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryPush,
    ) -> RepositoryResult<RepositoryPushed> {
        let (asked, credential) = (input.binding_id, input.credential);
        let args = json!({ "remote": input.remote, "branch": input.git_ref });
        let work = move |job: Arc<RepositoryJob>| {
            async move {
                let machine = GitMachine::open(&job, Reach::Writes).await?;
                job.step("pushing");
                let pushed = machine.git_remote("git_push", &job.binding.terms.label, args).await;
                machine.close().await;
                Ok(Finished { value: pushed?, commit: None })
            }
            .boxed()
        };
        self.operate(&cx, &asked, RepositoryOperation::Push, credential, work).await
    }

    pub(crate) async fn diff(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryDiff,
    ) -> RepositoryResult<RepositoryDiffed> {
        let args = json!({
            "staged": input.staged, "file_path": input.path, "max_bytes": input.max_bytes,
        });
        let work = move |job: Arc<RepositoryJob>| {
            async move {
                let machine = GitMachine::open(&job, Reach::Nothing).await?;
                let diff = machine.git("git_diff", &job.binding.terms.label, args).await;
                machine.close().await;
                Ok(Finished { value: diff?, commit: None })
            }
            .boxed()
        };
        self.operate(&cx, &input.binding_id, RepositoryOperation::Diff, None, work).await
    }
}

/// Commits everything. Who commits is what the call says, or the repository, or the configuration.
async fn committed(
    machine: &GitMachine<'_>,
    input: RepositoryCommit,
) -> RepositoryResult<Finished<RepositoryCommitted>> {
    let job = machine.job;
    job.step("committing");
    let label = &job.binding.terms.label;
    let (mut name, mut email) = (input.author_name, input.author_email);
    if name.is_none() && email.is_none() && machine.sh(IDENTITY, json!({})).await?.exit_code != 0 {
        let options = &job.service.options;
        (name, email) = (Some(options.author_name.clone()), Some(options.author_email.clone()));
    }
    let args = json!({
        "message": input.message, "add_all": true, "author_name": name, "author_email": email,
    });
    let done: Value = machine.git("git_commit", label, args).await?;
    if done["status"] != "committed" {
        let message = format!("nothing is changed in the repository `{label}`");
        return Err(ToolError::new(Layer::Actor, codes::NOTHING_TO_COMMIT, message)
            .next("change files first; aegis.git.diff shows what differs"));
    }
    let value: RepositoryCommitted = serde_json::from_value(done)
        .map_err(|error| ToolError::internal(format!("the answer of git_commit: {error}")))?;
    Ok(Finished { commit: Some(value.commit_sha.clone()), value })
}

/// Looks which commit is checked out, behind an operation that was cut short.
pub(crate) fn looked(
    job: Arc<RepositoryJob>,
) -> BoxFuture<'static, RepositoryResult<Finished<()>>> {
    async move {
        let machine = GitMachine::open(&job, Reach::Nothing).await?;
        let tree: RepositoryResult<WorkTree> =
            machine.git("git_status", &job.binding.terms.label, json!({})).await;
        machine.close().await;
        Ok(Finished { value: (), commit: tree?.commit_sha })
    }
    .boxed()
}
