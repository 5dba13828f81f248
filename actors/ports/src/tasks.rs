//! Task port: the guests' task queues as seen by whoever assigns tasks, and what waits in inboxes, for doors
//! that tell a session beside each answer.
//!
//! ```text
//! put ─► (hints) ─► results ─► the caller makes them durable ─► acknowledge
//! ```
//! The guest keeps a task from its put to its acknowledgement and runs it once, whatever happens to
//! links, daemons and machines in between. Guests are not trusted: everything a guest reports is
//! checked, bounded and compared with what was sent. A guest may still lie about its own work.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use hivekeep_kernel::{SessionId, ToolError, WorkspaceId};

/// Interval at which results are polled without a hint: a hint may be lost with a link.
pub const TASK_POLL: Duration = Duration::from_secs(2);

/// Task for a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAssignment {
    /// Id of the message that assigns the task.
    pub message_id: String,
    /// Id of the task in its workspace: 1 to 128 bytes without control characters. Another put of
    /// the same id runs nothing.
    pub task_id: String,
    /// Script for `/bin/sh`, at most 256 KiB.
    pub command: String,
    /// Working directory; `/workspace` if it exists, else `/root`. The result says which.
    pub workdir: Option<String>,
    /// Variables on top of the workspace's own environment at the time of the put.
    pub env: BTreeMap<String, String>,
    /// Wall-clock limit from the start of the task, 1 to 86,400.
    pub timeout_secs: u64,
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting for its turn.
    Queued,
    /// Started, without a result so far.
    Running,
    /// Ended with a result that was not acknowledged.
    Done,
    /// Ended with a result that was acknowledged.
    Acknowledged,
}

/// Answer to a put: the task is durable in its guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTaken {
    /// State of the task.
    pub state: TaskState,
    /// True if a task of this id had been put before; this put changed nothing.
    pub repeat: bool,
    /// True if that earlier task had another command, folder or time limit.
    pub differs: bool,
    /// Result of the task, when it is done.
    pub result: Option<TaskResult>,
}

/// Outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The command exited.
    Exited {
        /// Exit status.
        exit_code: i32,
    },
    /// The command was ended by a signal.
    Signalled {
        /// Signal number.
        signal: i32,
    },
    /// The task reached its limit and was killed with everything it had started.
    TimedOut,
    /// The task had been started when its machine went down. It may have done its work in part or
    /// whole, and is not run again.
    Interrupted,
    /// The task was cancelled.
    Cancelled,
    /// The task was not run: it makes no sense in this guest.
    Invalid {
        /// Code for programs, such as `not_found` for a folder that is not there.
        code: String,
        /// Reason for people.
        reason: String,
    },
    /// Its workspace is gone. Whether it ran is not known. Told by whoever kept the task: no guest
    /// does.
    Lost,
}

impl TaskOutcome {
    /// The word for it, as it is serialised.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signalled { .. } => "signalled",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Invalid { .. } => "invalid",
            Self::Lost => "lost",
        }
    }
}

/// Captured output of one stream of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskText {
    /// Beginning of the output, at most 16 KiB, with a notice of the total if cut.
    pub text: String,
    /// True if there was more output.
    pub truncated: bool,
    /// Number of bytes written by the task.
    pub total_bytes: u64,
    /// Path of the file in the guest that holds more, up to 16 MiB, for `file_read` and
    /// `file_transfer`.
    pub path: Option<String>,
}

/// Result of a task; identical however often it is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Sequence number; ascends with each task that ends in its guest.
    pub number: u64,
    /// Id of the task, as put.
    pub task_id: String,
    /// Id of the assigning message, as put.
    pub message_id: String,
    /// Outcome of the task.
    pub outcome: TaskOutcome,
    /// Folder, output and time of its command.
    #[serde(flatten)]
    pub capture: TaskCapture,
}

/// Folder, output and time of a task's command; part of whatever keeps a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCapture {
    /// Working directory.
    pub workdir: Option<String>,
    /// Captured stdout.
    pub stdout: TaskText,
    /// Captured stderr.
    pub stderr: TaskText,
    /// Time from the start to the end of the command; 0 if not known.
    pub elapsed_ms: u64,
}

/// Page of results, with the number of tasks that have none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    /// Results of tasks that were sent, each once, in the order in which they ended.
    pub results: Vec<TaskResult>,
    /// Number after which the next page begins.
    pub next_after: u64,
    /// True if there is a next page.
    pub more: bool,
    /// Number of tasks that wait.
    pub queued: u32,
    /// Number of tasks that run.
    pub running: u32,
    /// True if the guest pushed this page without being asked: both counts are then as of the end
    /// of the last of these results.
    pub told: bool,
    /// Number of results dropped: for tasks that were not sent, or duplicates.
    pub dropped: u32,
    /// Number of paths refused: outside the guest's folder of tasks.
    pub refused_paths: u32,
}

/// Overview of tasks without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskBoard {
    /// Ids of waiting tasks in order of arrival.
    pub queued: Vec<String>,
    /// Ids of running tasks in order of arrival; at most 4.
    pub running: Vec<String>,
    /// Number of results that wait to be acknowledged.
    pub results: u32,
}

/// Window of a task's output to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskWindow {
    /// Id of the task.
    pub task_id: String,
    /// First byte of stdout to read, from 0.
    pub stdout_from: u64,
    /// First byte of stderr to read, from 0.
    pub stderr_from: u64,
    /// Maximum number of bytes of each stream, at most 256 KiB.
    pub max_bytes: u32,
}

/// Part of one stream of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpan {
    /// Offset of the first byte: as asked, or the end of what is kept if that is nearer.
    pub from: u64,
    /// Bytes as written; a character may be cut at both ends.
    pub bytes: Vec<u8>,
    /// Number of bytes kept so far, at most 16 MiB: there is more if this exceeds the end of
    /// `bytes`.
    pub kept_bytes: u64,
    /// Number of bytes written so far.
    pub total_bytes: u64,
}

/// Output of a task so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutput {
    /// State of the task. Once it is done, the output is complete.
    pub state: TaskState,
    /// Part of stdout.
    pub stdout: TaskSpan,
    /// Part of stderr.
    pub stderr: TaskSpan,
}

/// Wake-ups for whoever polls for results.
#[derive(Debug, Clone)]
pub struct TaskHints(watch::Receiver<u64>);

impl TaskHints {
    /// Makes hints from a count that moves with each hint and each new link.
    pub fn new(count: watch::Receiver<u64>) -> Self {
        Self(count)
    }

    /// Number of hints since the workspace's actor began.
    pub fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits for the next hint since the last, at most [`TASK_POLL`]. Returns `false` when there
    /// will be no more: the workspace is gone, or its actor restarted.
    pub async fn next(&mut self) -> bool {
        match tokio::time::timeout(TASK_POLL, self.0.changed()).await {
            Ok(changed) => changed.is_ok(),
            Err(_time_to_look) => true,
        }
    }
}

/// Task queues of the guests. The caller knows who may assign tasks to which workspace.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Assigns a task: durable in its guest on return, and safe to repeat after any error.
    ///
    /// # Errors
    /// `workspace_not_found`; `workspace_state` when it does not run; `guest_unreachable`;
    /// `guest_busy` with 1,000 tasks not acknowledged; `guest_disk_full`; `invalid_input` and
    /// `too_large` for a task that no repetition would make acceptable.
    async fn put(&self, id: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError>;

    /// Reads results that were not acknowledged, beyond a number, at most `limit` (and at most 20).
    /// Consumes nothing. `sent` maps the ids of the tasks whose results are awaited to the messages
    /// that assigned them. Begin with 0: acknowledged results are not returned again.
    ///
    /// # Errors
    /// See [`Tasks::put`]; `guest_misbehaves` for a malformed page.
    async fn results(
        &self,
        id: WorkspaceId,
        after: u64,
        limit: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError>;

    /// Acknowledges results that are durable here. Returns how many of them this call acknowledged
    /// first, as the guest says.
    ///
    /// # Errors
    /// See [`Tasks::put`].
    async fn acknowledge(&self, id: WorkspaceId, task_ids: Vec<String>) -> Result<u32, ToolError>;

    /// Ends a task, which has a result afterwards. Returns its state before.
    ///
    /// # Errors
    /// See [`Tasks::put`]; `unknown_task`.
    async fn cancel(&self, id: WorkspaceId, task_id: String) -> Result<TaskState, ToolError>;

    /// Lists the tasks that have no result.
    ///
    /// # Errors
    /// See [`Tasks::put`].
    async fn board(&self, id: WorkspaceId) -> Result<TaskBoard, ToolError>;

    /// Subscribes to hints that results are worth polling. Legal in every state of the workspace.
    ///
    /// # Errors
    /// `workspace_not_found`.
    async fn hints(&self, id: WorkspaceId) -> Result<TaskHints, ToolError>;
}

/// Output of tasks while they run. The event `task.progress` says how far they are.
#[async_trait]
pub trait TaskOutputs: Send + Sync {
    /// Reads a part of a task's output. Consumes nothing; legal after the task's end too, until its
    /// guest has forgotten it.
    ///
    /// # Errors
    /// See [`Tasks::put`]; `unknown_task`.
    async fn output(&self, id: WorkspaceId, window: TaskWindow) -> Result<TaskOutput, ToolError>;
}

/// Messages and results that wait for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSummary {
    /// Number of messages.
    pub messages: usize,
    /// Number of results of tasks.
    pub results: usize,
    /// The oldest of all.
    pub oldest: OldestWaiting,
}

/// The oldest item of a [`WaitingSummary`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestWaiting {
    /// Name of the team.
    pub team: String,
    /// Member in whose inbox the item waits.
    pub member: String,
    /// Member that the item is from: the sender of a message, the one whose task ended.
    pub from: String,
    /// Time from which on the item waits.
    pub since: DateTime<Utc>,
}

/// Inboxes of all sessions, as summaries in memory.
pub trait WaitingMessages: Send + Sync {
    /// Summary of what waits for a session and is not on its way to it; `None` when nothing does. Answers
    /// from memory, without waiting: every call of every session asks.
    fn of(&self, session: SessionId) -> Option<WaitingSummary>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A swarm's records have results like this, from before a capture was a type.
    #[test]
    fn a_result_is_written_as_it_always_was() {
        let text = |text: &str| serde_json::json!({ "text": text, "truncated": false, "total_bytes": 1, "path": null });
        let old = serde_json::json!({
            "number": 7, "task_id": "t", "message_id": "m",
            "outcome": { "outcome": "exited", "exit_code": 3 }, "workdir": "/root",
            "stdout": text("o"), "stderr": text("e"), "elapsed_ms": 5,
        });
        let result: TaskResult = serde_json::from_value(old.clone()).expect("it is read");
        assert_eq!((result.capture.stdout.text.as_str(), result.capture.elapsed_ms), ("o", 5));
        assert_eq!(serde_json::to_value(&result).expect("it is written"), old);
    }
}
