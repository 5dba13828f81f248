//! One command, or one each, in many workspaces at once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::execution::{MAX_TIMEOUT_SECS, default_output_bytes};

/// Most workspaces of one call.
pub(crate) const MAX_WORKSPACES: usize = 20;

/// Run commands in several workspaces at the same time and collect the results
/// in the order of the workspaces. One that fails does not stop the others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecParallel {
    /// Ids or names of 1 to 20 workspaces.
    #[schemars(length(min = 1, max = MAX_WORKSPACES))]
    pub workspace_ids: Vec<String>,
    /// One command for all, or a list with one for each.
    pub commands: Commands,
    /// Wall-clock limit of each command in seconds, 1 to 86400.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout_secs")]
    pub timeout_secs: u64,
    /// Directory to run in; default /workspace.
    pub workdir: Option<String>,
    /// Environment variables for these commands, over those of set_env.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Bytes of stdout, and of stderr, to return of each.
    #[serde(default = "default_output_bytes")]
    pub max_output_bytes: u64,
}

fn default_timeout_secs() -> u64 {
    300
}

/// One command for all, or one for each.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Commands {
    /// The same everywhere.
    Same(String),
    /// In the order of the workspaces.
    Each(Vec<String>),
}

/// What came of the commands.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ParallelResult {
    /// In the order of the workspaces.
    pub results: Vec<ParallelRow>,
    /// How many went how.
    pub summary: ParallelSummary,
}

/// One workspace's outcome.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ParallelRow {
    /// The workspace, as it was named.
    pub workspace_id: String,
    /// Its name.
    pub workspace_name: String,
    /// Exit status; -1 when there is none, and then `error` says why.
    pub exit_code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr, or the error's message.
    pub stderr: String,
    /// The limit was reached and the command killed.
    pub timed_out: bool,
    /// Code of the error, when the command gave no exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts over all workspaces.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ParallelSummary {
    /// Workspaces.
    pub total: usize,
    /// Exit status 0.
    pub succeeded: usize,
    /// Anything else but a timeout.
    pub failed: usize,
    /// Killed at the limit.
    pub timed_out: usize,
    /// From the first start to the last end.
    pub elapsed_ms: u64,
}
