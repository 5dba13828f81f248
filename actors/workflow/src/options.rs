//! Section `[workflow]` of the configuration.

use std::{collections::BTreeMap, path::PathBuf};

use hivekeep_kernel::User;
use hivekeep_manifest_registry::RegistryLimits;
use hivekeep_runtime::{FamilyOptions, runs::RunOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of each user's workflows, of those that the operators keep for everybody, and of runs; and which DAGs begin by
/// themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Workflows by name; a user's tier may allow fewer (`workflows`).
    #[schemars(range(min = 1))]
    pub max_workflows: usize,
    /// Size of all versions of all manifests of workflows, held in memory. A version counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_manifests_mb: usize,
    /// Runs that take steps at a time, at most three quarters of them one user's; a user's tier may allow fewer
    /// (`runs`). One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Runs that are over and kept.
    pub kept: usize,
    /// Days that a run is kept after its end, unless its DAG says otherwise (`hist_retention_days`).
    pub kept_days: u32,
    /// Seconds that the workspace of a run that did not succeed is kept for a retry, stopped, before it is destroyed; 0:
    /// not at all. That of a run that succeeded is destroyed at its end.
    #[schemars(range(max = 31_622_400))]
    pub keep_workspace_secs: u64,
    /// Places of `[session.places]` whose DAGs begin by themselves: YAML files of the folder `dags` there that have a
    /// `schedule`. A run is its file's owner's, with all rights of that user of this host, so nobody else may be able to
    /// write the file.
    pub folders: Vec<String>,
    /// Queues that runs wait in for their place, by name: `[workflow.queues.NAME]` with `concurrency`. One that is
    /// not here has a place.
    pub queues: BTreeMap<String, QueueOptions>,
    /// Secrets that steps of DAGs have in their environment, by the name that a DAG's `secrets` refer to (`ref`, or the
    /// `key` of the provider `env`): `[workflow.secrets."team/token"]` with `file` or `env`, and `users`.
    pub secrets: BTreeMap<String, SecretOptions>,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueOptions {
    /// Runs of the queue that take steps at a time.
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

/// A secret. What it is now is read each time a step starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretOptions {
    /// File with its value, without the line's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Variable of the daemon's environment that holds its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Users whose runs may have it, as `uid:1000` and `bearer`. Commands of these can read it.
    #[schemars(length(min = 1))]
    pub users: Vec<User>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_workflows: 500,
            max_manifests_mb: 16,
            max_running: 32,
            kept: 1_000,
            kept_days: 30,
            keep_workspace_secs: 3_600,
            folders: Vec::new(),
            queues: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        for (name, SecretOptions { file, env, .. }) in &self.secrets {
            if file.is_some() == env.is_some() {
                wrong.push(("secrets", format!("`{name:.80}` needs either `file` or `env`")));
            } else if file.as_ref().is_some_and(|file| !file.is_absolute()) {
                wrong.push(("secrets", format!("`{name:.80}`: `file` must be an absolute path")));
            }
        }
        wrong
    }
}

impl Options {
    /// Bounds of the workflows of a scope.
    pub(crate) fn workflows(&self) -> RegistryLimits {
        let bytes = self.max_manifests_mb.saturating_mul(1024 * 1024);
        RegistryLimits { names: self.max_workflows, bytes }
    }

    /// Bounds of the runs.
    pub(crate) fn runs(&self) -> RunOptions {
        let bound = |(name, queue): (&String, &QueueOptions)| (name.clone(), queue.concurrency);
        let queues = self.queues.iter().map(bound).collect();
        let Self { max_running, kept, kept_days, .. } = *self;
        RunOptions { max_running, kept, kept_days, queues }
    }
}
