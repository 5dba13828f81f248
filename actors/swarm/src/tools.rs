//! The tools `swarm_run`, `swarm_status` and `swarm_cancel`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SwarmId, WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::swarms::Swarms;

/// Tasks of a swarm.
pub(crate) const MOST_TASKS: usize = 20;
/// Tasks at a time, unless a call says so.
pub(crate) const DEFAULT_PARALLEL: u32 = 4;
/// A task's time limit, unless a call says so.
pub(crate) const DEFAULT_TIMEOUT_SECS: u64 = 600;
/// Outputs of twenty tasks with every character escaped, and the longest result of a merge.
pub(crate) const RESULT_BUDGET_BYTES: usize = 12 * 1024 * 1024;

/// Run tasks side by side, each in a fork of one snapshot of its own, and answer what
/// became of every one: forks are made, the tasks run, the commits of those that
/// succeeded are merged if asked for, and the forks are removed; one with commits that
/// could not be merged stays and is named. A fork or a task that fails fails alone. What makes no sense is refused before anything is made. The swarm is
/// durable: it goes on after a restart of the daemon, and past the time limit of the call,
/// whose error then names the swarm_id for swarm_status. Cancelling the call ends the
/// swarm and removes its forks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwarmRun {
    /// Id or name of the workspace whose snapshot is forked. It may be in any state.
    pub golden_workspace: String,
    /// Name of the snapshot. With memory in it forks are there in a moment.
    pub snapshot_name: String,
    /// The tasks, 1 to 20.
    #[schemars(length(min = 1, max = MOST_TASKS))]
    pub tasks: Vec<SwarmTask>,
    /// Variables for all tasks, on top of the environment that forks have from the golden workspace.
    #[serde(default)]
    pub env_vars: BTreeMap<String, String>,
    /// Merge the commits that successful tasks made in /workspace, in the order of tasks, as workspace_merge does. Default: no merge. What is not committed is not merged.
    pub merge_strategy: Option<SwarmMergeStrategy>,
    /// Id or name of the running workspace that gets the commits, with merge_strategy. Default: golden_workspace.
    pub merge_target: Option<String>,
    /// Most tasks, with their forks, at a time, 1 to 20. Default: 4.
    #[schemars(range(min = 1, max = MOST_TASKS))]
    pub max_parallel: Option<u32>,
    /// Limit of each task from its start, 1 to 86400. Default: 600.
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_secs: Option<u64>,
    /// Remove the forks, also when tasks fail. Those with commits that could not be merged stay all the same, unless the swarm is cancelled; workers_kept names them. false leaves all to the session. Default: true.
    pub cleanup: Option<bool>,
    /// Let the forks reach public addresses of the internet. Default: as the golden workspace.
    pub allow_internet: Option<bool>,
    /// Notes of the vault, up to 20, that each fork gets in the file /tmp/.vault-context, which VAULT_CONTEXT names.
    #[schemars(length(max = 20))]
    #[serde(default)]
    pub vault_context: Vec<SwarmVaultQuery>,
    /// Text, up to 1048576 bytes, that each fork gets in the file /tmp/.shared-context, which SHARED_CONTEXT names.
    pub shared_context: Option<String>,
}

/// A task that is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwarmTask {
    /// Unique in the call, 1 to 64 characters. The fork is named after it.
    pub name: String,
    /// A script for /bin/sh, up to 262144 bytes. It succeeds when it exits with 0.
    pub command: String,
    /// Folder that the command runs in, an absolute path. Default: /workspace if there is one, else /root.
    pub workdir: Option<String>,
    /// Variables of this task alone, on top of env_vars.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Shape of the merged history, as in workspace_merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwarmMergeStrategy {
    /// A single line of commits.
    Sequential,
    /// A branch for each fork, joined by merge commits.
    BranchPerSource,
    /// Every commit replayed with the shape of the history.
    CherryPick,
}

/// Query of the vault, whose result each fork gets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwarmVaultQuery {
    /// Kind of the query.
    pub kind: SwarmVaultKind,
    /// search: text that a line has to have. read: path of the note.
    #[schemars(length(min = 1, max = 1024))]
    pub query: String,
}

/// Kind of a query of the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SwarmVaultKind {
    /// The first five lines that match, with those around them.
    Search,
    /// A whole note.
    Read,
}

/// A swarm: all of it, or how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmResult {
    /// Id of the swarm.
    pub swarm_id: SwarmId,
    /// `running`, `merging`, `cleaning_up`, and at the end `completed` or `cancelled`. A completed swarm may have tasks that failed. `given_up`: it cannot go on before the next start of the daemon, which tries again; gave_up says why.
    pub state: String,
    /// A row a task, by name.
    pub tasks: Vec<SwarmTaskResult>,
    /// Counts.
    pub summary: SwarmSummary,
    /// Result of the merge, when one was asked for and it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<SwarmMerge>,
    /// Forks that could not be removed. They are tried again until they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers_left: Vec<SwarmWorkerLeft>,
    /// Forks that stay although forks were to be removed: with commits that could not be merged, or taken over by another session. workspace_destroy removes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers_kept: Vec<SwarmWorkerKept>,
    /// Cause of the state `given_up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
    /// The workspace whose snapshot was forked.
    pub golden_workspace: WorkspaceId,
    /// Name of the snapshot.
    pub snapshot_name: String,
    /// When it was planned.
    pub started_at: DateTime<Utc>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// State of a task, with its result when it is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmTaskResult {
    /// Name of the task, as given.
    pub name: String,
    /// The task's fork; null when none was made.
    pub workspace_id: Option<WorkspaceId>,
    /// Name of the task's fork.
    pub workspace_name: String,
    /// The task's command ran and exited with 0.
    pub success: bool,
    /// `waiting`, `forked` and `running`; then `exited`, `signalled`, `timed_out`, `interrupted` (its machine went down while it ran; it is not run again), `cancelled`, `invalid` (the guest did not run it) or `failed` (no result was got; error says why).
    pub outcome: String,
    /// Exit status, when the command exited.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Beginning of stdout, at most 16 KiB.
    pub stdout: String,
    /// Beginning of stderr, at most 16 KiB.
    pub stderr: String,
    /// Stdout or stderr was longer than what is here.
    pub truncated: bool,
    /// Bytes that the command wrote to stdout.
    pub stdout_bytes: u64,
    /// Bytes that the command wrote to stderr.
    pub stderr_bytes: u64,
    /// The file in the fork that has up to 16 MiB of stdout, when forks are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// The same for stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
    /// Folder that the command ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// From the command's start to its end.
    pub elapsed_ms: u64,
    /// Time that making the task's fork took.
    pub fork_ms: u64,
    /// Code of the error, where there is no exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Why there is no exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts of a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmSummary {
    /// Tasks.
    pub total_tasks: usize,
    /// Tasks that exited with 0.
    pub succeeded: usize,
    /// Tasks that are over and did not.
    pub failed: usize,
    /// Tasks that are not over.
    pub pending: usize,
    /// From the plan to the end, or to now.
    pub total_elapsed_ms: u64,
    /// Forks that were made and are removed.
    pub workers_destroyed: usize,
    /// Forks that were made and are there.
    pub workers_left: usize,
}

/// Result of a swarm's merge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmMerge {
    /// The strategy that was asked for.
    pub strategy: SwarmMergeStrategy,
    /// The workspace with the commits.
    pub target_workspace: WorkspaceId,
    /// Every successful task's commits are in the target.
    pub success: bool,
    /// The daemon stopped during the merge and it was asked for again; commits that had arrived by then count as being there already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// The answer of workspace_merge, with conflicts by source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// Why not everything is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A fork that is still there and should not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmWorkerLeft {
    /// Its name.
    pub workspace_name: String,
    /// Its id, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Why it could not be removed.
    pub error: String,
}

/// A fork that is still there on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmWorkerKept {
    /// Its name.
    pub workspace_name: String,
    /// Its id, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Why it stays, and what to do with it.
    pub reason: String,
}

/// Show a swarm, as far as it is or with all its results, or list the swarms. The last
/// hundred that are over are kept for a week.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwarmStatus {
    /// The swarm. Default: list all, the oldest first.
    pub swarm_id: Option<SwarmId>,
    /// With swarm_id: wait this long for its end, up to 300 seconds. Default: 0, answer at once.
    #[schemars(range(max = 300))]
    pub wait_secs: Option<u64>,
}

/// A swarm, or the list.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SwarmStatusResult {
    /// The swarm that was asked for.
    pub swarm: Option<SwarmResult>,
    /// All swarms, the oldest first.
    pub swarms: Option<Vec<SwarmRow>>,
    /// Number of swarms in the list.
    pub count: Option<usize>,
}

/// A swarm in the list.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmRow {
    /// Id of the swarm.
    pub swarm_id: SwarmId,
    /// State of the swarm, or `planned` while it is being written down.
    pub state: String,
    /// Whether it is the calling session's.
    pub owned: bool,
    /// Counts; absent while it is being written down.
    pub summary: Option<SwarmSummary>,
    /// When it was planned.
    pub started_at: DateTime<Utc>,
    /// When it was over.
    pub ended_at: Option<DateTime<Utc>>,
}

/// End a swarm: what runs is stopped, nothing is merged, and its forks are removed unless
/// they were to be kept. swarm_status with wait_secs waits until that is done.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwarmCancel {
    /// The swarm.
    pub swarm_id: SwarmId,
}

/// A swarm that was told to end.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SwarmCancelled {
    /// The swarm.
    pub swarm_id: SwarmId,
    /// False when nothing was left to cut short: it was over, or only removed its forks.
    pub cancelled: bool,
}

/// Time limit of a `swarm_run` in seconds: its tasks at their limits, `max_parallel` at a time, with
/// room for forks and a merge.
fn limit(input: &Value) -> Option<u64> {
    let tasks = input.get("tasks")?.as_array()?.len() as u64;
    let number = |field: &str| input.get(field).and_then(Value::as_u64);
    let each = number("timeout_secs").unwrap_or(DEFAULT_TIMEOUT_SECS).saturating_add(120);
    let parallel = number("max_parallel").unwrap_or(DEFAULT_PARALLEL.into()).max(1);
    Some(each.saturating_mul(tasks.div_ceil(parallel)).saturating_add(900))
}

fn wait(input: &Value) -> Option<u64> {
    Some(30 + input.get("wait_secs").and_then(Value::as_u64).unwrap_or(0))
}

tools! { pub FAMILY: "orchestration" for Swarms, singleton swarms;
    swarm_run: SwarmRun => SwarmResult = Swarms::run {
        title: "Run a swarm of tasks", effect: Destroy, rate: RateClass::Create, risk: Risk::Medium,
        timeout_secs: 3600, limit_secs: limit, result_budget_bytes: RESULT_BUDGET_BYTES,
        told_by: Some("swarm_status"),
    };
    swarm_status: SwarmStatus => SwarmStatusResult = Swarms::status {
        title: "Look at swarms", effect: Read, timeout_secs: 30, limit_secs: wait,
        result_budget_bytes: RESULT_BUDGET_BYTES,
    };
    swarm_cancel: SwarmCancel => SwarmCancelled = Swarms::cancel {
        title: "Cancel a swarm", effect: Destroy, risk: Risk::Medium,
    };
}
