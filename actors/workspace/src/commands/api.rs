//! Running commands and background jobs in one workspace.

use std::collections::BTreeMap;

use hivekeep_kernel::JobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest time limit of a command.
pub(crate) const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
/// Most output of one stream that a call returns.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024 * 1024;

/// Run a shell command in a running workspace and wait for it. A command that
/// exits with another code than 0 is a success of the tool. Processes it leaves
/// behind are ended with it; for those use exec_background.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Script for /bin/sh.
    pub command: String,
    /// Wall-clock limit in seconds, 1 to 86400; at its end the whole process tree is killed.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout_secs")]
    pub timeout_secs: u64,
    /// Directory to run in; default the image's, or else /workspace.
    pub workdir: Option<String>,
    /// Whom to run as, `USER[:GROUP]`; default the image's user. `root` is there in every image.
    pub user: Option<String>,
    /// Environment variables for this command, over those of set_env.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Bytes of stdout, and of stderr, to return; output beyond is counted and dropped with a notice.
    #[schemars(range(max = MAX_OUTPUT_BYTES))]
    #[serde(default = "default_output_bytes")]
    pub max_output_bytes: u64,
}

pub(super) fn default_timeout_secs() -> u64 {
    120
}

pub(super) fn default_output_bytes() -> u64 {
    256 * 1024
}

/// End and output of a command.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ExecResult {
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// The signal that ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Stdout of the command, cut with a notice.
    pub stdout: String,
    /// Stderr of the command, cut with a notice.
    pub stderr: String,
    /// Bytes that the command wrote to stdout.
    pub stdout_bytes: u64,
    /// Bytes that the command wrote to stderr.
    pub stderr_bytes: u64,
    /// Whether stdout or stderr was cut.
    pub truncated: bool,
    /// Processes that the command left behind, which were killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub killed_stragglers: u32,
    /// Wall-clock time in the guest.
    pub elapsed_ms: u64,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Start, poll or kill a background job of a workspace. Jobs outlive the call,
/// the client and the daemon. Polling consumes nothing and works while the job
/// runs and after it ended.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ExecBackground {
    /// Id or name of the workspace.
    pub workspace_id: String,
    #[serde(flatten)]
    pub(crate) action: JobAction,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum JobAction {
    /// Start one.
    Start {
        /// Script for /bin/sh.
        command: String,
        /// Directory to run in; default the image's, or else /workspace.
        workdir: Option<String>,
        /// Whom to run as, `USER[:GROUP]`; default the image's user.
        user: Option<String>,
        /// Environment variables, over those of set_env.
        env: Option<BTreeMap<String, String>>,
    },
    /// Look at one.
    Poll {
        /// The job.
        job_id: JobId,
        /// Return stdout from this byte on; default 0. Pass the last stdout_next to read only what is new.
        stdout_from: Option<u64>,
        /// Return stderr from this byte on; default 0.
        stderr_from: Option<u64>,
    },
    /// Signal one.
    Kill {
        /// The job.
        job_id: JobId,
        /// Signal number; default 9.
        #[schemars(range(min = 1, max = 64))]
        signal: Option<i32>,
    },
}

/// A job, as far as the action shows it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    /// The job.
    #[schemars(with = "String")]
    pub job_id: String,
    /// start: `started`; kill: `killed`, `signalled` (it still runs) or `already_ended`.
    pub status: Option<String>,
    /// poll, kill: whether it still runs.
    pub running: Option<bool>,
    /// poll: exit status; null while it runs; 128 and the signal's number when a signal ended it.
    pub exit_code: Option<i32>,
    /// kill: the signal sent. poll: the signal that ended it.
    pub signal: Option<i32>,
    /// poll: the machine went down under it; how it would have ended is not known.
    pub interrupted: Option<bool>,
    /// poll: stdout from the asked byte on.
    pub stdout: Option<String>,
    /// poll: stderr from the asked byte on.
    pub stderr: Option<String>,
    /// poll: where to continue reading stdout.
    pub stdout_next: Option<u64>,
    /// poll: where to continue reading stderr.
    pub stderr_next: Option<u64>,
    /// poll: bytes it wrote to stdout so far, kept or not.
    pub stdout_bytes: Option<u64>,
    /// poll: bytes it wrote to stderr so far, kept or not.
    pub stderr_bytes: Option<u64>,
}

/// Set environment variables that every later command and job of the workspace
/// gets, across stops and restarts. A null value removes the variable.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetEnv {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Values by name. PATH, IFS, ENV, BASH_ENV and LD_* are refused.
    pub vars: BTreeMap<String, Option<String>>,
}

/// Counts of a workspace's variables after a change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EnvSet {
    /// Variables set or removed by this call.
    pub count: usize,
    /// `set`.
    pub status: String,
    /// Variables that the workspace has now.
    pub total: usize,
}
