//! Task queue requests. The guest keeps assigned commands on its disk, runs each once, and keeps
//! the result until the host has it.
//!
//! ```text
//! TaskPut ─► queued ─► running ─► done ─► TaskAck ─► acknowledged ─► forgotten, oldest first
//! ```
//! A task differs from a job in that it waits its turn, has a time limit that holds without the
//! guest's daemon, and ends with its command: leftover processes of the command are killed.

use serde::{Deserialize, Serialize};

use crate::{Exit, GuestError, Spool};

/// Assigns a task. Durable in the guest before it is answered. Another put with the same `task_id`
/// starts nothing: it is answered with the state of the first.
///
/// A task that makes no sense (a NUL in the command, a missing folder) is accepted and ends as
/// [`GuestTaskOutcome::NotRun`]; only what cannot be stored is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPut {
    /// Id of the message that assigned it, repeated with the result. Same limits as `task_id`, or
    /// empty.
    pub message_id: String,
    /// Id of the task in this guest: 1 to [`crate::limits::MAX_TASK_ID_BYTES`] bytes without
    /// control characters.
    pub task_id: String,
    /// Script for `/bin/sh`, at most [`crate::limits::MAX_TASK_COMMAND_BYTES`].
    pub command: String,
    /// Working directory, see [`crate::RunCommand::workdir`].
    pub workdir: Option<String>,
    /// Variables, see [`crate::RunCommand::env`]. At most [`crate::limits::MAX_TASK_ENV_BYTES`] together.
    pub env: Vec<(String, String)>,
    /// Wall-clock limit from the start: 1 to [`crate::limits::MAX_TASK_TIMEOUT_SECS`]. At its end
    /// every process of the task gets SIGKILL.
    pub timeout_secs: u64,
}

/// Answer to [`TaskPut`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPutReply {
    /// State of the task.
    pub state: GuestTaskState,
    /// True if a task of this id had been put before.
    pub repeat: bool,
    /// True if that task had another command, folder or time limit. The earlier one counts.
    pub differs: bool,
    /// Result of the task, when it is done.
    pub result: Option<Box<GuestTaskResult>>,
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestTaskState {
    /// Waiting for its turn.
    Queued,
    /// Started, without a result so far.
    Running,
    /// Ended with a result that the host has not acknowledged.
    Done,
    /// Ended with a result that the host has.
    Acknowledged,
}

/// Lists what is queued and what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskList;

/// Answer to [`TaskList`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskListReply {
    /// Ids of queued tasks in order of arrival.
    pub queued: Vec<String>,
    /// Ids of running tasks in order of arrival; at most [`crate::limits::TASKS_AT_ONCE`].
    pub running: Vec<String>,
    /// Number of results that the host has not acknowledged.
    pub results: u32,
}

/// Reads results that were not acknowledged, in the order in which the tasks ended. Reading
/// consumes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResults {
    /// Number beyond which to read: only results with a greater [`GuestTaskResult::number`].
    pub after: u64,
    /// Maximum number of results, never more than [`crate::limits::MAX_TASK_RESULTS`].
    pub limit: u32,
}

/// Answer to [`TaskResults`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResultsReply {
    /// Results by ascending number.
    pub results: Vec<GuestTaskResult>,
    /// True if there are more beyond the last.
    pub more: bool,
    /// Number of tasks that wait.
    pub queued: u32,
    /// Number of tasks that run.
    pub running: u32,
}

/// Result of a task. Immutable once it was reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTaskResult {
    /// Sequence number; ascends with each task that ends in this guest, from 1.
    pub number: u64,
    /// Id of the task, as put.
    pub task_id: String,
    /// Id of the message, as put.
    pub message_id: String,
    /// Outcome of the task.
    pub outcome: GuestTaskOutcome,
    /// Folder it was started in; `None` when it was not started.
    pub workdir: Option<String>,
    /// Captured stdout.
    pub stdout: TaskStreamOutput,
    /// Captured stderr.
    pub stderr: TaskStreamOutput,
    /// Time from the start to the end of the command; 0 if not known.
    pub elapsed_ms: u64,
}

/// Outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestTaskOutcome {
    /// The command ended this way by itself.
    Ended(Exit),
    /// The limit was reached and the whole task was killed.
    TimedOut,
    /// The machine went down, or the task's supervising process died. It had been started, may have
    /// done its work in part or whole, and is not run again.
    Interrupted,
    /// Ended by [`TaskCancel`], before its start or after.
    Cancelled,
    /// Not run, for this reason.
    NotRun(GuestError),
}

/// Captured output of one stream of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStreamOutput {
    /// Beginning of the output, at most [`crate::limits::TASK_SHOWN_BYTES`].
    #[serde(with = "serde_bytes")]
    pub head: Vec<u8>,
    /// Number of bytes written by the task.
    pub total_bytes: u64,
    /// Path of the file that holds more than the head does, up to
    /// [`crate::limits::TASK_SPOOL_BYTES`]. When such files take more than
    /// [`crate::limits::TASK_OUTPUTS_BYTES`] together, the oldest acknowledged ones are removed.
    pub path: Option<String>,
}

/// Acknowledges results that the host has, durably. Succeeds for ids that are acknowledged already
/// or unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAck {
    /// Ids of the tasks, at most [`crate::limits::MAX_TASKS`].
    pub task_ids: Vec<String>,
}

/// Answer to [`TaskAck`], when it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAcked {
    /// Number of tasks that became acknowledged by this.
    pub acknowledged: u32,
}

/// Ends a task. Its result will be [`GuestTaskOutcome::Cancelled`], or the outcome just before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancel {
    /// Id of the task.
    pub task_id: String,
}

/// Answer to [`TaskCancel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancelled {
    /// State of the task before.
    pub state: GuestTaskState,
}

/// Reads a task's output, complete or so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRead {
    /// Id of the task.
    pub task_id: String,
    /// Cursor into stdout; 0 is its start.
    pub stdout_from: u64,
    /// Cursor into stderr.
    pub stderr_from: u64,
    /// Maximum number of bytes of each stream, never more than
    /// [`crate::limits::MAX_TASK_READ_BYTES`].
    pub max_bytes: u32,
}

/// Answer to [`TaskRead`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReadReply {
    /// State of the task. Once it is done, its output is complete.
    pub state: GuestTaskState,
    /// stdout from the asked cursor.
    pub stdout: Spool,
    /// stderr from the asked cursor.
    pub stderr: Spool,
}

/// Has the tasks of the machine whose memory this one began with go on as its own. Asked before
/// [`crate::Reidentify`], which ends them otherwise. Idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksKeep {
    /// Machine id that [`crate::Reidentify`] will give it.
    pub machine_id: String,
}

/// Answer to [`TasksKeep`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksKept {
    /// Number of tasks that wait or run.
    pub open: u32,
}

/// Pushed result: the answer to a [`TaskResults`] request that the host would send now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResultsPush {
    /// Request that is answered: [`TaskResults::after`]. A greater number has the same answer, up
    /// to the result's number.
    pub after: u64,
    /// Answer, with one result.
    pub page: TaskResultsReply,
}

/// Notice that a running task has written something. At most once a second for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Id of the task.
    pub task_id: String,
    /// Id of the message that assigned it.
    pub message_id: String,
    /// Number of bytes written so far to stdout.
    pub stdout_bytes: u64,
    /// Number of bytes written so far to stderr.
    pub stderr_bytes: u64,
    /// End of the latest output, at most [`crate::limits::MAX_TASK_TAIL_BYTES`].
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
}
