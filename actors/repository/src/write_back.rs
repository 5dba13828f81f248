//! What is written back from a repository's tree, or looked at in it, each in a workspace of its own.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError};
use serde_json::{Value, json};

use crate::{
    binding::Operation,
    bindings::Answer,
    codes,
    job::{Finished, Job},
    machine::{Machine, Reach},
    refresh::WorkTree,
    repositories::Repositories,
    tools::{
        RepositoryCommit, RepositoryCommitted, RepositoryDiff, RepositoryDiffed, RepositoryPush,
        RepositoryPushed,
    },
};

impl Repositories {
    pub(crate) async fn commit(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryCommit,
    ) -> Answer<RepositoryCommitted> {
        let asked = input.binding_id.clone();
        let work = move |job: Arc<Job>| {
            async move {
                let machine = Machine::open(&job, Reach::Nothing).await?;
                let done = committed(&machine, input).await;
                machine.close().await;
                done
            }
            .boxed()
        };
        self.operate(&cx, &asked, Operation::Commit, None, work).await
    }

    pub(crate) async fn push(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryPush,
    ) -> Answer<RepositoryPushed> {
        let (asked, credential) = (input.binding_id, input.credential);
        let args = json!({ "remote": input.remote, "branch": input.git_ref });
        let work = move |job: Arc<Job>| {
            async move {
                let machine = Machine::open(&job, Reach::Writes).await?;
                job.step("pushing");
                let pushed = machine.git_remote("git_push", &job.binding.terms.label, args).await;
                machine.close().await;
                Ok(Finished { value: pushed?, commit: None })
            }
            .boxed()
        };
        self.operate(&cx, &asked, Operation::Push, credential, work).await
    }

    pub(crate) async fn diff(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryDiff,
    ) -> Answer<RepositoryDiffed> {
        let args = json!({
            "staged": input.staged, "file_path": input.path, "max_bytes": input.max_bytes,
        });
        let work = move |job: Arc<Job>| {
            async move {
                let machine = Machine::open(&job, Reach::Nothing).await?;
                let diff = machine.git("git_diff", &job.binding.terms.label, args).await;
                machine.close().await;
                Ok(Finished { value: diff?, commit: None })
            }
            .boxed()
        };
        self.operate(&cx, &input.binding_id, Operation::Diff, None, work).await
    }
}

/// Commits everything. Who commits is what the call says, or the repository, or the configuration.
async fn committed(
    machine: &Machine<'_>,
    input: RepositoryCommit,
) -> Answer<Finished<RepositoryCommitted>> {
    let job = machine.job;
    job.step("committing");
    let label = &job.binding.terms.label;
    let by = |name: Option<&str>, email: Option<&str>| {
        json!({
            "message": input.message, "add_all": true, "author_name": name, "author_email": email,
        })
    };
    let given = by(input.author_name.as_deref(), input.author_email.as_deref());
    let mut done: Answer<Value> = machine.git("git_commit", label, given).await;
    if done.as_ref().is_err_and(|error| error.code == "identity_missing") {
        let options = &job.service.options;
        let ours = by(Some(&options.author_name), Some(&options.author_email));
        done = machine.git("git_commit", label, ours).await;
    }
    let done = done?;
    if done["status"] == "nothing_to_commit" {
        let message = format!("nothing is changed in the repository `{label}`");
        return Err(ToolError::new(Layer::Actor, codes::NOTHING_TO_COMMIT, message)
            .next("change files first; aegis.git.diff shows what differs"));
    }
    let value: RepositoryCommitted = serde_json::from_value(done)
        .map_err(|error| ToolError::internal(format!("the answer of git_commit: {error}")))?;
    Ok(Finished { commit: Some(value.commit_sha.clone()), value })
}

/// Looks which commit is checked out, behind an operation that was cut short.
pub(crate) fn looked(job: Arc<Job>) -> BoxFuture<'static, Answer<Finished<()>>> {
    async move {
        let machine = Machine::open(&job, Reach::Nothing).await?;
        let tree: Answer<WorkTree> =
            machine.git("git_status", &job.binding.terms.label, json!({})).await;
        machine.close().await;
        Ok(Finished { value: (), commit: tree?.commit_sha })
    }
    .boxed()
}
