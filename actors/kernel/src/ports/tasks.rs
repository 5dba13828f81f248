//! Tasks as who assigns them sees them.
//!
//! ```text
//! put ─► (hints) ─► results ─► the caller makes them durable ─► acknowledge
//! ```
//! The guest keeps a task from its put to its acknowledgement and runs it once, whatever happens to
//! links, daemons and machines in between. A guest is not trusted: what it tells is checked, bounded
//! and compared with what was sent. It may still lie about its own work.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{ToolError, WorkspaceId};

/// Results are asked for this often when no hint came: one may be lost with a link.
pub const TASK_POLL: Duration = Duration::from_secs(2);

/// A task for a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAssignment {
    /// The message that assigns it.
    pub message_id: String,
    /// Names the task in its workspace: 1 to 128 bytes without control characters. Another put of
    /// the same id runs nothing.
    pub task_id: String,
    /// A script for `/bin/sh`, at most 256 KiB.
    pub command: String,
    /// Where it runs; `/workspace` if it exists, else `/root`. The result says which.
    pub workdir: Option<String>,
    /// On top of the workspace's own environment at the time of the put.
    pub env: BTreeMap<String, String>,
    /// Wall-clock limit from its start, 1 to 86,400.
    pub timeout_secs: u64,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It waits for its turn.
    Queued,
    /// It was started.
    Running,
    /// It has a result, which was not acknowledged.
    Done,
    /// Its result was acknowledged.
    Acknowledged,
}

/// Answer to a put: the task is durable in its guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTaken {
    /// Where it stands.
    pub state: TaskState,
    /// A task of this id had been put before; this put changed nothing.
    pub repeat: bool,
    /// That one had another command, folder or time limit.
    pub differs: bool,
    /// What became of it, when it is done.
    pub result: Option<TaskResult>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// Its command exited.
    Exited {
        /// With this status.
        exit_code: i32,
    },
    /// Its command was ended by a signal.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// It reached its limit and was killed with all it had started.
    TimedOut,
    /// It had been started when its machine went down. It may have done its work in part or
    /// whole, and is not run again.
    Interrupted,
    /// It was cancelled.
    Cancelled,
    /// It was not run: it makes no sense in this guest.
    Invalid {
        /// A code for programs, such as `not_found` for a folder that is not there.
        code: String,
        /// For people.
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

/// One stream of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskText {
    /// The beginning, at most 16 KiB and a notice of how much there was.
    pub text: String,
    /// There was more.
    pub truncated: bool,
    /// Bytes written by the task.
    pub total_bytes: u64,
    /// The file in the guest that holds more, up to 16 MiB, for `file_read` and `file_transfer`.
    pub path: Option<String>,
}

/// What became of a task. The same however often it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Ascends with each task that ends in its guest.
    pub number: u64,
    /// As put.
    pub task_id: String,
    /// As put.
    pub message_id: String,
    /// How it ended.
    pub outcome: TaskOutcome,
    /// Where it ran.
    pub workdir: Option<String>,
    /// What it wrote.
    pub stdout: TaskText,
    /// What it wrote there.
    pub stderr: TaskText,
    /// From its start to the end of its command; 0 where that is not known.
    pub elapsed_ms: u64,
}

/// Results, and how many tasks have none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    /// Of tasks that were sent, each once, in the order in which they ended.
    pub results: Vec<TaskResult>,
    /// Where the next page begins.
    pub next_after: u64,
    /// There is a next page.
    pub more: bool,
    /// Tasks that wait.
    pub queued: u32,
    /// Tasks that run.
    pub running: u32,
    /// The guest told this by itself, before it was asked: both counts are of when the last of these
    /// results ended.
    pub told: bool,
    /// Results that were dropped: for tasks that were not sent, or told twice.
    pub dropped: u32,
    /// Paths that were refused: outside the guest's folder of tasks.
    pub refused_paths: u32,
}

/// Tasks without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskBoard {
    /// Ids in order of arrival.
    pub queued: Vec<String>,
    /// Ids in order of arrival; at most 4.
    pub running: Vec<String>,
    /// Results that wait to be acknowledged.
    pub results: u32,
}

/// Which part of a task's output is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskWindow {
    /// The task.
    pub task_id: String,
    /// First byte of stdout; 0 begins.
    pub stdout_from: u64,
    /// First byte of stderr.
    pub stderr_from: u64,
    /// Most bytes of each, at most 256 KiB.
    pub max_bytes: u32,
}

/// A part of one stream of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpan {
    /// Where it begins: as asked, or at the end of what is kept when that is nearer.
    pub from: u64,
    /// As written; a character may be cut at both ends.
    pub bytes: Vec<u8>,
    /// Bytes kept so far, at most 16 MiB: there is more where this is beyond `from` and `bytes`.
    pub kept_bytes: u64,
    /// Bytes written so far.
    pub total_bytes: u64,
}

/// What a task has written so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutput {
    /// Where it stands. Of one that is done this is all that it wrote.
    pub state: TaskState,
    /// Of stdout.
    pub stdout: TaskSpan,
    /// Of stderr.
    pub stderr: TaskSpan,
}

/// Tells when it is worth asking for results.
#[derive(Debug, Clone)]
pub struct TaskHints(watch::Receiver<u64>);

impl TaskHints {
    /// From a count that moves with each hint and each new link.
    pub fn new(count: watch::Receiver<u64>) -> Self {
        Self(count)
    }

    /// How often it moved since the workspace's actor began.
    pub fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Returns at the next hint since the last, at the latest after [`TASK_POLL`]. `false` when
    /// there will be no more: the workspace is gone, or its actor began anew.
    pub async fn next(&mut self) -> bool {
        match tokio::time::timeout(TASK_POLL, self.0.changed()).await {
            Ok(changed) => changed.is_ok(),
            Err(_time_to_look) => true,
        }
    }
}

/// The guests' queues of tasks. Who may assign tasks to which workspace is the caller's to know.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Assigns a task: durable in its guest when this returns, and safe to be done again after any
    /// error.
    ///
    /// # Errors
    /// `workspace_not_found`; `workspace_state` when it does not run; `guest_unreachable`;
    /// `guest_busy` with 1,000 tasks not acknowledged; `guest_disk_full`; `invalid_input` and
    /// `too_large` for what will be refused whenever it is put.
    async fn put(&self, id: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError>;

    /// Reads results that were not acknowledged, beyond a number, at most `limit` (and at most
    /// 20). Consumes nothing. `sent` has the tasks of which results are awaited, each with the
    /// message that assigned it. Begin with 0: what was acknowledged is not told again.
    ///
    /// # Errors
    /// As [`Tasks::put`]; `guest_misbehaves` for a page that is none.
    async fn results(
        &self,
        id: WorkspaceId,
        after: u64,
        limit: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError>;

    /// Tells the guest that these results are durable here. Returns how many became acknowledged
    /// by it, as the guest says.
    ///
    /// # Errors
    /// As [`Tasks::put`].
    async fn acknowledge(&self, id: WorkspaceId, task_ids: Vec<String>) -> Result<u32, ToolError>;

    /// Ends a task, which has a result afterwards. Returns where it stood.
    ///
    /// # Errors
    /// As [`Tasks::put`]; `unknown_task`.
    async fn cancel(&self, id: WorkspaceId, task_id: String) -> Result<TaskState, ToolError>;

    /// What has no result.
    ///
    /// # Errors
    /// As [`Tasks::put`].
    async fn board(&self, id: WorkspaceId) -> Result<TaskBoard, ToolError>;

    /// When to ask for results. Legal in every state of the workspace.
    ///
    /// # Errors
    /// `workspace_not_found`.
    async fn hints(&self, id: WorkspaceId) -> Result<TaskHints, ToolError>;
}

/// What tasks write while they run. How far they are is told by the event `task.progress`.
#[async_trait]
pub trait TaskOutputs: Send + Sync {
    /// Reads a part of what a task has written. Consumes nothing; legal also after its end, until
    /// its guest has forgotten it.
    ///
    /// # Errors
    /// As [`Tasks::put`]; `unknown_task`.
    async fn output(&self, id: WorkspaceId, window: TaskWindow) -> Result<TaskOutput, ToolError>;
}
