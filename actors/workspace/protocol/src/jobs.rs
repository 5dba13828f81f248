//! Background jobs: commands that outlive the call, the link and the guest daemon; and interactive processes: jobs with
//! an open standard input, and a terminal if asked.
//!
//! A process is a job of its own terms: its input stays open until it is closed by order, of its output the last
//! bytes are kept instead of the first, and its end is ordered from the process that looks after it, so that no death
//! of the guest's daemon undoes an order. [`crate::JobPoll`], [`crate::JobKill`], [`crate::JobList`] and
//! [`crate::JobForget`] work on it too.

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

/// Starts a process. Durable and repeatable as [`JobStart`]; answered by [`crate::JobStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Command, environment and folder. Of each stream at least the last `spool_bytes`, and at most
    /// twice as many, are kept: in a [`crate::Spool`] `from` is beyond the cursor that was asked for
    /// by as much as was dropped, and `kept_bytes` is the cursor at which the stream ends.
    pub job: JobStart,
    /// Size of its terminal; `None` gives it pipes.
    pub pty: Option<PtySize>,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub cols: u16,
}

/// Starts a process that reads nothing: its standard input is `/dev/null`. It has no terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStartWithoutInput {
    /// Command, as in [`ProcessStart::job`].
    pub job: JobStart,
}

/// Starts a process whose output is held back: output that would drop bytes not yet asked for is not taken,
/// and the process waits. Its reader has read what is before the cursors of [`crate::JobPoll`]; where these
/// have not moved for [`crate::limits::MAX_HELD_MS`], nothing is held back until they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStartHeld {
    /// Process to start.
    pub start: ProcessStart,
    /// True for no input, as in [`ProcessStartWithoutInput`].
    pub without_input: bool,
}

/// Sets the size of a process's terminal; its foreground processes get SIGWINCH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessResize {
    /// Id of the process.
    pub job_id: String,
    /// New size.
    pub size: PtySize,
}

/// Answer to [`ProcessResize`], when the terminal has the size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessResized;

/// Writes to the standard input of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInput {
    /// Id of the process.
    pub job_id: String,
    /// Bytes to write, at most [`crate::limits::MAX_PROCESS_INPUT_BYTES`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Closes the input once all bytes are written; a terminal gets its end-of-file character. May
    /// be repeated.
    pub close: bool,
}

/// Answer to [`ProcessInput`], after at most two seconds of waiting for room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInputTaken {
    /// Number of bytes written: fewer than asked when the process does not read.
    pub written: u64,
    /// True if the input is closed now.
    pub closed: bool,
}

/// Ends a process with everything that it started: SIGTERM, and SIGKILL after a grace period.
/// Answered by [`crate::JobKilled`] when nothing is left of it; given up, it takes effect all the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStop {
    /// Id of the process.
    pub job_id: String,
    /// Time between the two signals; 0 sends SIGKILL at once.
    pub grace_ms: u64,
}
