//! Tasks: commands that somebody was assigned. The guest keeps them on its disk, runs each once,
//! and keeps what became of it until the host has it.
//!
//! ```text
//! TaskPut ─► queued ─► running ─► done ─► TaskAck ─► acknowledged ─► forgotten, oldest first
//! ```
//! A task differs from a job in that it waits its turn, has a time limit that holds without the
//! guest's daemon, and ends with its command: what the command left behind is killed.

use serde::{Deserialize, Serialize};

use crate::{Exit, GuestError, Spool};

/// Assigns a task. Durable in the guest before it is answered. Another put with the same
/// `task_id` starts nothing: it is answered with what became of the first.
///
/// A task that makes no sense (a NUL in the command, a folder that is not there) is taken and ends
/// as [`TaskOutcome::NotRun`]; only what cannot be kept is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPut {
    /// The message that assigned it; told again with the result. As `task_id`, or empty.
    pub message_id: String,
    /// Names the task in this guest: 1 to [`crate::limits::MAX_TASK_ID_BYTES`] bytes without
    /// control characters.
    pub task_id: String,
    /// A script for `/bin/sh`, at most [`crate::limits::MAX_TASK_COMMAND_BYTES`].
    pub command: String,
    /// As in [`crate::Exec::workdir`].
    pub workdir: Option<String>,
    /// As in [`crate::Exec::env`]. At most [`crate::limits::MAX_TASK_ENV_BYTES`] together.
    pub env: Vec<(String, String)>,
    /// Wall-clock limit from its start: 1 to [`crate::limits::MAX_TASK_TIMEOUT_SECS`]. At its end
    /// every process of the task gets SIGKILL.
    pub timeout_secs: u64,
}

/// Answer to [`TaskPut`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTaken {
    /// Where the task stands.
    pub state: TaskState,
    /// A task of this id had been put before.
    pub repeat: bool,
    /// That one had another command, folder or time limit. It is the one that counts.
    pub differs: bool,
    /// What became of it, when it is done.
    pub result: Option<Box<TaskResult>>,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// It waits for its turn.
    Queued,
    /// It was started.
    Running,
    /// It has a result, for which the guest waits to be told that the host has it.
    Done,
    /// The host has the result.
    Acknowledged,
}

/// What is queued and what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskList;

/// Answer to [`TaskList`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// Ids in order of arrival.
    pub queued: Vec<String>,
    /// Ids in order of arrival; at most [`crate::limits::TASKS_AT_ONCE`].
    pub running: Vec<String>,
    /// Results that the host has not acknowledged.
    pub results: u32,
}

/// Reads results that were not acknowledged, in the order in which the tasks ended. Reading
/// consumes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResults {
    /// Only those with a greater [`TaskResult::number`].
    pub after: u64,
    /// At most so many, and never more than [`crate::limits::MAX_TASK_RESULTS`].
    pub limit: u32,
}

/// Answer to [`TaskResults`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPage {
    /// By ascending number.
    pub results: Vec<TaskResult>,
    /// There are more beyond the last.
    pub more: bool,
    /// Tasks that wait.
    pub queued: u32,
    /// Tasks that run.
    pub running: u32,
}

/// What became of a task. It does not change once it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Ascends with each task that ends in this guest, from 1.
    pub number: u64,
    /// As put.
    pub task_id: String,
    /// As put.
    pub message_id: String,
    /// How it ended.
    pub outcome: TaskOutcome,
    /// The folder it was started in; `None` when it was not started.
    pub workdir: Option<String>,
    /// What it wrote.
    pub stdout: TaskOutput,
    /// What it wrote there.
    pub stderr: TaskOutput,
    /// From its start to the end of its command. 0 where that is not known.
    pub elapsed_ms: u64,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// Its command ended so by itself.
    Ended(Exit),
    /// The limit was reached and all of it was killed.
    TimedOut,
    /// The machine went down, or what looked after the task died. It had been started, may have
    /// done its work in part or whole, and is not run again.
    Interrupted,
    /// Ended by [`TaskCancel`], before its start or after.
    Cancelled,
    /// It was not run, for this reason.
    NotRun(GuestError),
}

/// One stream of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    /// The beginning, at most [`crate::limits::TASK_SHOWN_BYTES`].
    #[serde(with = "serde_bytes")]
    pub head: Vec<u8>,
    /// Bytes written by the task.
    pub total_bytes: u64,
    /// The file that holds more than the head does, up to
    /// [`crate::limits::TASK_SPOOL_BYTES`]. The oldest ones go, once acknowledged, when such
    /// files take more than [`crate::limits::TASK_OUTPUTS_BYTES`] together.
    pub path: Option<String>,
}

/// The host has these results, durably. Ok for ids that are acknowledged already or unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAck {
    /// At most [`crate::limits::MAX_TASKS`].
    pub task_ids: Vec<String>,
}

/// Answer to [`TaskAck`], when it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAcked {
    /// How many became acknowledged by this.
    pub acknowledged: u32,
}

/// Ends a task. It will have a result: [`TaskOutcome::Cancelled`], or how it ended just before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancel {
    /// The task.
    pub task_id: String,
}

/// Answer to [`TaskCancel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancelled {
    /// Where the task stood before.
    pub state: TaskState,
}

/// Reads what a task has written so far, or wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRead {
    /// The task.
    pub task_id: String,
    /// Cursor into stdout; 0 begins.
    pub stdout_from: u64,
    /// Cursor into stderr.
    pub stderr_from: u64,
    /// Most bytes of each stream, and never more than [`crate::limits::MAX_TASK_READ_BYTES`].
    pub max_bytes: u32,
}

/// Answer to [`TaskRead`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReading {
    /// Where the task stands. What is said to be done has written all that it will.
    pub state: TaskState,
    /// stdout from the asked cursor.
    pub stdout: Spool,
    /// stderr from the asked cursor.
    pub stderr: Spool,
}

/// A result that is told without being asked for, as the answer to a question that its hearer
/// would ask now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNews {
    /// The question: [`TaskResults::after`]. A greater one has the same answer, up to the result's
    /// number.
    pub after: u64,
    /// The answer, of one result.
    pub page: TaskPage,
}

/// A running task has written something. At most once a second for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// The task.
    pub task_id: String,
    /// The message that assigned it.
    pub message_id: String,
    /// Bytes written so far to stdout.
    pub stdout_bytes: u64,
    /// And to stderr.
    pub stderr_bytes: u64,
    /// The end of what was written last, at most [`crate::limits::MAX_TASK_TAIL_BYTES`].
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
}
