//! The tools `aegis.git.commit`, `aegis.git.push` and `aegis.git.diff`: a repository's tree, each time in a
//! workspace of its own.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    binding::RepositoryOperation,
    codes,
    machine::{GitMachine, Reach, WorkTree},
    operation::{Finished, RepositoryJob},
    remote::RemoteCredential,
    repositories::{Repositories, RepositoryResult},
};

/// Largest difference in bytes that is returned, as `git_diff` has it.
const MAX_DIFF_BYTES: u64 = 2 * 1024 * 1024;

/// Commit every change in a repository's tree, new and removed files included.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryCommit {
    /// Id or label of the repository.
    binding_id: String,
    /// The commit's message, as it is.
    #[schemars(length(min = 1, max = 65_536))]
    message: String,
    /// Name of author and committer, with author_email. Default: that of the repository, else the daemon's.
    author_name: Option<String>,
    /// E-mail address of author and committer, with author_name.
    author_email: Option<String>,
}

/// Push a branch of a repository to the branch of the same name. History of the remote is never replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryPush {
    /// Id or label of the repository.
    binding_id: String,
    /// The remote, by its name.
    #[serde(default = "origin")]
    remote: String,
    /// The branch. Default: the one that is checked out.
    #[serde(rename = "ref")]
    git_ref: Option<String>,
    /// Credential for the remote's server, for this push alone.
    credential: Option<RemoteCredential>,
}

fn origin() -> String {
    "origin".to_owned()
}

/// Show what differs in a repository's tree from what is staged, or what is staged from the last commit. New
/// files that were never staged are not part of it. Credentials in it are hidden, and counted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryDiff {
    /// Id or label of the repository.
    binding_id: String,
    /// Show what is staged instead of what is not.
    #[serde(default)]
    staged: bool,
    /// Only this file or folder of the tree.
    path: Option<String>,
    /// Bytes to return; what is beyond is cut with a notice.
    #[schemars(range(min = 1, max = MAX_DIFF_BYTES))]
    #[serde(default = "diff_bytes")]
    max_bytes: u64,
}

fn diff_bytes() -> u64 {
    65_536
}

/// A new commit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct RepositoryCommitted {
    /// The commit's hash.
    commit_sha: String,
    /// The hash in short.
    short_sha: Option<String>,
    /// The branch; null where none is checked out.
    branch: Option<String>,
    /// Output of `git commit`.
    summary: String,
}

/// A push that the remote took.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct RepositoryPushed {
    /// Always true: a push that failed is an error.
    success: bool,
    /// The remote.
    remote: String,
    /// The branch.
    #[serde(rename(serialize = "ref", deserialize = "branch"))]
    git_ref: String,
    /// `pushed`, or `up_to_date` when the remote had it all.
    status: String,
    /// Output of git and of the server, without credentials.
    output: String,
}

/// A difference.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct RepositoryDiffed {
    /// The unified diff; empty when nothing differs.
    diff: String,
    /// Whether it was cut; then it cannot be applied.
    truncated: bool,
    /// Bytes of all of it.
    total_bytes: u64,
    /// Credentials that were hidden in it; if not 0, it cannot be applied.
    redacted: usize,
}

tools! { pub(crate) FAMILY: "repository trees" for service Repositories, singleton repositories;
    repository_commit: RepositoryCommit => RepositoryCommitted = Repositories::commit {
        name: "aegis.git.commit", title: "Commit a repository", rate: RateClass::Exec,
        timeout_secs: 600, told_by: Some("aegis.git.status"),
    };
    repository_push: RepositoryPush => RepositoryPushed = Repositories::push {
        name: "aegis.git.push", title: "Push a repository", effect: Destroy, risk: Risk::Medium,
        rate: RateClass::Exec, open_world: true, timeout_secs: 1800,
        told_by: Some("aegis.git.status"),
    };
    repository_diff: RepositoryDiff => RepositoryDiffed = Repositories::diff {
        name: "aegis.git.diff", title: "Show what differs in a repository", effect: Read,
        rate: RateClass::Exec, timeout_secs: 600,
    };
}

/// Fails where the repository does not say who commits.
const IDENTITY: &str = "git -C \"$LABEL\" var GIT_COMMITTER_IDENT >/dev/null";

impl Repositories {
    async fn commit(
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

    async fn push(
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

    async fn diff(
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
