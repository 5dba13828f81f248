//! Trees of repositories, each looked at or written back by git in a workspace of its own.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{repositories::Repositories, tools::RemoteCredential};

/// Largest difference in bytes that is returned, as `git_diff` has it.
const MAX_DIFF_BYTES: u64 = 2 * 1024 * 1024;

/// Commit every change in a repository's tree, new and removed files included.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryCommit {
    /// Id or label of the repository.
    pub(crate) binding_id: String,
    /// The commit's message, as it is.
    #[schemars(length(min = 1, max = 65_536))]
    pub(crate) message: String,
    /// Who commits, with author_email. Default: as the repository, else the daemon, is configured.
    pub(crate) author_name: Option<String>,
    /// Who commits, with author_name.
    pub(crate) author_email: Option<String>,
}

/// Push a branch of a repository to the branch of the same name. History of the remote is never replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryPush {
    /// Id or label of the repository.
    pub(crate) binding_id: String,
    /// The remote, by its name.
    #[serde(default = "origin")]
    pub(crate) remote: String,
    /// The branch. Default: the one that is checked out.
    #[serde(rename = "ref")]
    pub(crate) git_ref: Option<String>,
    /// Who one is for the remote's server, for this push alone.
    pub(crate) credential: Option<RemoteCredential>,
}

fn origin() -> String {
    "origin".to_owned()
}

/// Show what differs in a repository's tree from what is staged, or what is staged from the last commit. New
/// files that were never staged are not part of it. Credentials in it are hidden, and counted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryDiff {
    /// Id or label of the repository.
    pub(crate) binding_id: String,
    /// Show what is staged instead of what is not.
    #[serde(default)]
    pub(crate) staged: bool,
    /// Only this file or folder of the tree.
    pub(crate) path: Option<String>,
    /// Bytes to return; what is beyond is cut with a notice.
    #[schemars(range(min = 1, max = MAX_DIFF_BYTES))]
    #[serde(default = "diff_bytes")]
    pub(crate) max_bytes: u64,
}

fn diff_bytes() -> u64 {
    65_536
}

/// A new commit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RepositoryCommitted {
    /// Its hash.
    pub(crate) commit_sha: String,
    /// Its short name.
    pub(crate) short_sha: Option<String>,
    /// The branch; null where none is checked out.
    pub(crate) branch: Option<String>,
    /// What git says of it.
    pub(crate) summary: String,
}

/// A push that the remote took.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RepositoryPushed {
    /// Always true: a push that failed is an error.
    pub(crate) success: bool,
    /// The remote.
    pub(crate) remote: String,
    /// The branch.
    #[serde(rename(serialize = "ref", deserialize = "branch"))]
    pub(crate) git_ref: String,
    /// `pushed`, or `up_to_date` when the remote had it all.
    pub(crate) status: String,
    /// What git and the server said, without credentials.
    pub(crate) output: String,
}

/// A difference.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RepositoryDiffed {
    /// The unified diff; empty when nothing differs.
    pub(crate) diff: String,
    /// Whether it was cut; then it cannot be applied.
    pub(crate) truncated: bool,
    /// Bytes of all of it.
    pub(crate) total_bytes: u64,
    /// Credentials that were hidden in it; if not 0, it cannot be applied.
    pub(crate) redacted: usize,
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
