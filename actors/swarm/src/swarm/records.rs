//! Records of a swarm, in its stream `swarm/<swarm id>`.
//!
//! ```text
//! Planned ─► (WorkerMade ─► TaskEnded)* ─► Merging ─► Merged ─► Cleaned ─► snapshot ─► Cleaned*
//!                                  Cancelled, at any time before the end
//! ```
//! Every record can be missing where a daemon died, and what it was about is done again then: a
//! fork is looked for by its name, a put task is not run twice, a merge finds what has arrived.
//! A record may be larger than the journal takes, so each is written in pieces, in one commit.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    SessionId, SwarmId, ToolError, WorkspaceId,
    ports::{TaskOutcome, TaskResult},
};
use serde::{Deserialize, Serialize};

use crate::tools::{SwarmMerge, SwarmMergeStrategy, SwarmWorkerKept, SwarmWorkerLeft};

/// All that a swarm is going to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SwarmPlan {
    pub(crate) id: SwarmId,
    pub(crate) owner: SessionId,
    pub(crate) at: DateTime<Utc>,
    pub(crate) golden: WorkspaceId,
    pub(crate) snapshot: String,
    pub(crate) tasks: Vec<TaskPlan>,
    /// Environment of every task.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) contexts: Vec<ContextFile>,
    pub(crate) max_parallel: usize,
    pub(crate) timeout_secs: u64,
    pub(crate) cleanup: bool,
    pub(crate) allow_internet: Option<bool>,
    pub(crate) merge: Option<MergePlan>,
}

/// A task, and the name that its fork will have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskPlan {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) workdir: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workspace: String,
}

/// A file that every fork gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextFile {
    pub(crate) path: String,
    pub(crate) content: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergePlan {
    pub(crate) strategy: SwarmMergeStrategy,
    pub(crate) target: WorkspaceId,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskEnd {
    /// The guest reported a result.
    Ran(Box<TaskResult>),
    /// There is no result, and none is waited for any more.
    Failed(Box<ToolError>),
}

impl TaskEnd {
    pub(crate) fn success(&self) -> bool {
        matches!(self, Self::Ran(result) if result.outcome == TaskOutcome::Exited { exit_code: 0 })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The swarm is going to be run.
    Planned(Box<SwarmPlan>),
    /// A task has its fork.
    WorkerMade { task: usize, workspace: WorkspaceId, fork_ms: u64 },
    /// A task is over.
    TaskEnded { task: usize, end: TaskEnd },
    /// The swarm is to end now.
    Cancelled,
    /// The merge is about to be asked for.
    Merging,
    /// The merge has answered.
    Merged { merge: Box<SwarmMerge> },
    /// All forks are removed but these, and those that are kept.
    Cleaned {
        left: Vec<SwarmWorkerLeft>,
        #[serde(default)]
        kept: Vec<SwarmWorkerKept>,
        /// Time of the removal, which ends the swarm or, after its end, removes the forks that were
        /// left. Absent in records of a daemon that wrote the end into the snapshot alone: such a
        /// record does not end the swarm.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<DateTime<Utc>>,
    },
}
