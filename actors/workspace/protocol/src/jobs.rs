//! Background jobs: commands that outlive the call, the link and the guest daemon.

use serde::{Deserialize, Serialize};

use crate::{Argv, Exit};

/// Starts a job. Durable in the guest before it is answered; repeating the call with the same id
/// and command returns the running job instead of starting a second one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStart {
    /// Id chosen by the host: `[A-Za-z0-9_-]{1,64}`.
    pub job_id: String,
    /// Command to run.
    pub argv: Argv,
    /// Variables, see [`crate::RunCommand::env`].
    pub env: Vec<(String, String)>,
    /// Working directory, see [`crate::RunCommand::workdir`].
    pub workdir: Option<String>,
    /// Maximum number of bytes kept of each stream; output beyond is counted and dropped.
    pub spool_bytes: u64,
}

/// Answer to [`JobStart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStarted {
    /// Process id of the job's leader in the guest.
    pub pid: u32,
    /// True if the job existed already.
    pub existed: bool,
}

/// Reads a job's state and its output from the given cursors. Reading consumes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPoll {
    /// Id of the job.
    pub job_id: String,
    /// First byte of stdout to read.
    pub stdout_from: u64,
    /// First byte of stderr to read.
    pub stderr_from: u64,
    /// Maximum number of bytes of each stream (never more than fits a frame).
    pub max_bytes: u64,
}

/// Reads a job as [`JobPoll`] does, as soon as there is something behind a cursor or the job has ended,
/// or else when the time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWait {
    /// Job, and the cursors to read from.
    pub poll: JobPoll,
    /// Longest wait, at most [`crate::limits::MAX_WAIT_MS`].
    pub wait_ms: u64,
}

/// Part of a job's kept output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spool {
    /// Cursor of the first byte in `bytes`.
    pub from: u64,
    /// Bytes kept from the cursor on.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Number of bytes kept so far.
    pub kept_bytes: u64,
    /// Number of bytes written by the job so far, kept or not.
    pub total_bytes: u64,
}

/// Answer to [`JobPoll`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// State of the job without output.
    pub summary: JobSummary,
    /// stdout from the asked cursor.
    pub stdout: Spool,
    /// stderr from the asked cursor.
    pub stderr: Spool,
}

/// State of a job without its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Id of the job.
    pub job_id: String,
    /// Exit of the job; `None` while it runs.
    pub exit: Option<Exit>,
    /// True if it did not end by itself or by a kill: the machine went down under it.
    pub interrupted: bool,
    /// Guest wall clock at start, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Guest wall clock at the end, Unix milliseconds.
    pub finished_unix_ms: Option<u64>,
}

/// Signals every process of a job. Succeeds when it has ended already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKill {
    /// Id of the job.
    pub job_id: String,
    /// Signal number, 1 to 64.
    pub signal: i32,
}

/// Answer to [`JobKill`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKilled {
    /// True if the job had ended before the signal.
    pub already_ended: bool,
    /// State of the job after at most half a second of waiting for the signal's effect.
    pub summary: JobSummary,
}

/// Lists the jobs that the guest keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList;

/// Answer to [`JobList`], oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobListReply {
    /// Jobs, at most [`crate::limits::MAX_JOBS`].
    pub jobs: Vec<JobSummary>,
}

/// Removes an ended job and its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobForget {
    /// Id of the job.
    pub job_id: String,
}

/// Answer to [`JobForget`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobForgotten;
