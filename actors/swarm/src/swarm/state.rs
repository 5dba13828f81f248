//! An event-sourced state of a swarm: what its records add up to, in its stream `swarm/<swarm id>`.
//!
//! ```text
//! Planned ─► (WorkerMade ─► TaskEnded)* ─► Merging ─► Merged ─► Cleaned ─► snapshot ─► Cleaned*
//!                                  Cancelled, at any time before the end
//! ```
//! Every record can be missing where a daemon died, and what it was about is done again then: a
//! fork is looked for by its name, a put task is not run twice, a merge finds what has arrived.
//! A record may be larger than the journal takes, so each is written in pieces, in one commit.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, SwarmId, ToolError, WorkspaceId};
use hivekeep_ports::{TaskOutcome, TaskResult};
use hivekeep_runtime::{
    log::{self, Sourced},
    saga::SagaState,
};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools::{SwarmMerge, SwarmMergeStrategy, SwarmResult, SwarmWorkerKept, SwarmWorkerLeft};

/// Below [`LEAST_RECORD_KB`].
const PIECE_BYTES: usize = 256 * 1024;
/// Least value of `store.max_record_kb`.
pub(crate) const LEAST_RECORD_KB: usize = 512;

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

/// A task as far as it is recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SwarmTaskState {
    /// The task's fork.
    pub(crate) worker: Option<WorkspaceId>,
    pub(crate) fork_ms: u64,
    pub(crate) end: Option<Arc<TaskEnd>>,
}

/// A swarm that goes on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningSwarm {
    pub(crate) plan: Arc<SwarmPlan>,
    pub(crate) tasks: Vec<SwarmTaskState>,
    pub(crate) cancelled: bool,
    pub(crate) merging: bool,
    pub(crate) merged: Option<Arc<SwarmMerge>>,
    pub(crate) left: Option<Vec<SwarmWorkerLeft>>,
    pub(crate) kept: Vec<SwarmWorkerKept>,
}

/// A swarm that is over. Its snapshot takes the place of its records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FinishedSwarm {
    pub(crate) owner: SessionId,
    pub(crate) result: SwarmResult,
}

/// A swarm. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SwarmState {
    /// Tasks, the merge or removals are left.
    Running(Arc<RunningSwarm>),
    /// The swarm has its result; forks may be left that could not be removed.
    Finished(Arc<FinishedSwarm>),
}

impl RunningSwarm {
    pub(crate) fn new(plan: SwarmPlan) -> Self {
        let tasks = vec![SwarmTaskState::default(); plan.tasks.len()];
        Self {
            plan: Arc::new(plan),
            tasks,
            cancelled: false,
            merging: false,
            merged: None,
            left: None,
            kept: Vec::new(),
        }
    }

    /// True when nothing is left that a cancellation could cut short.
    pub(crate) fn settled(&self) -> bool {
        let merges = self.plan.merge.is_some() && self.merged.is_none();
        !merges && self.open_tasks().next().is_none()
    }

    /// Tasks that have not ended.
    pub(crate) fn open_tasks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tasks.len()).filter(|task| self.tasks[*task].end.is_none())
    }

    /// Tasks whose commits were to be merged, and are not in the target.
    pub(crate) fn unmerged(&self) -> Vec<usize> {
        let Some(merge) = self.merged.as_deref().filter(|merge| !merge.success) else {
            return Vec::new();
        };
        let rows = merge.detail.as_ref().and_then(|detail| detail["sources"].as_array());
        let arrived = |worker: WorkspaceId| {
            let is_it = |row: &&Value| row["source_id"] == worker.to_string();
            let row = rows.and_then(|rows| rows.iter().find(is_it));
            row.is_some_and(|row| matches!(row["status"].as_str(), Some("merged" | "up_to_date")))
        };
        let tasks = self.tasks.iter().enumerate();
        let made = tasks.filter(|(_, task)| task.end.as_ref().is_some_and(|end| end.success()));
        made.filter(|(_, task)| task.worker.is_some_and(|worker| !arrived(worker)))
            .map(|(at, _)| at)
            .collect()
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::WorkerMade { task, workspace, fork_ms } if task < self.tasks.len() => {
                let task = &mut self.tasks[task];
                (task.worker, task.fork_ms) = (Some(workspace), fork_ms);
            }
            Record::TaskEnded { task, end } if task < self.tasks.len() => {
                self.tasks[task].end = Some(Arc::new(end));
            }
            // A cancellation that came too late changes nothing.
            Record::Cancelled => self.cancelled |= !self.settled(),
            Record::Merging => self.merging = true,
            Record::Merged { merge } => self.merged = Some(Arc::from(merge)),
            Record::Cleaned { left, kept, .. } => (self.left, self.kept) = (Some(left), kept),
            other => return Err(other),
        }
        Ok(())
    }

    fn finish(
        &self,
        left: Vec<SwarmWorkerLeft>,
        kept: Vec<SwarmWorkerKept>,
        at: DateTime<Utc>,
    ) -> FinishedSwarm {
        let mut over = Self { left: Some(left), kept, ..self.clone() }.finished(at);
        if !self.plan.cleanup {
            return over;
        }
        over.recount();
        over
    }
}

impl FinishedSwarm {
    pub(crate) fn snapshot(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    /// Counts the forks that are gone: all that were made, but those that are named.
    fn recount(&mut self) {
        let SwarmResult { summary, workers_left: left, workers_kept: kept, .. } = &mut self.result;
        let named = left.iter().filter(|row| row.workspace_id.is_some()).count()
            + kept.iter().filter(|row| row.workspace_id.is_some()).count();
        let made = summary.workers_destroyed + summary.workers_left;
        summary.workers_left = named.min(made);
        summary.workers_destroyed = made - summary.workers_left;
    }
}

impl SwarmState {
    pub(crate) fn owner(&self) -> SessionId {
        match self {
            Self::Running(state) => state.plan.owner,
            Self::Finished(over) => over.owner,
        }
    }
}

impl Sourced for SwarmState {
    const KIND: &'static str = "swarm";
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Planned(plan) => Ok(Self::Running(Arc::new(RunningSwarm::new(*plan)))),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match (&mut *self, record) {
            (Self::Running(state), Record::Cleaned { left, kept, at: Some(at) }) => {
                *self = Self::Finished(Arc::new(state.finish(left, kept, at)));
                Ok(())
            }
            (Self::Running(state), record) => Arc::make_mut(state).apply(record),
            // The cancellation came too late.
            (Self::Finished(_), Record::Cancelled) => Ok(()),
            (Self::Finished(over), Record::Cleaned { left, kept, at: Some(_) }) => {
                let over = Arc::make_mut(over);
                (over.result.workers_left, over.result.workers_kept) = (left, kept);
                over.recount();
                Ok(())
            }
            (Self::Finished(_), other) => Err(other),
        }
    }

    fn fold_due(&self, unfolded: usize) -> bool {
        unfolded > 0 && matches!(self, Self::Finished(_))
    }

    fn fold(&self) -> Option<Vec<u8>> {
        match self {
            Self::Running(_) => None,
            Self::Finished(over) => over.snapshot(),
        }
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let over = serde_json::from_slice(snapshot).map_err(|error| error.to_string())?;
        Ok(Self::Finished(Arc::new(over)))
    }
}

impl SagaState for SwarmState {
    fn holds(&self) -> Option<SessionId> {
        match self {
            Self::Running(state) => Some(state.plan.owner),
            Self::Finished(_) => None,
        }
    }

    fn is_cancelled(&self) -> bool {
        matches!(self, Self::Running(state) if state.cancelled)
    }

    fn cancellation(&self) -> Option<Record> {
        match self {
            Self::Running(state) if !state.settled() => Some(Record::Cancelled),
            _ => None,
        }
    }
}

/// The stream of a swarm.
pub(crate) fn stream(id: SwarmId) -> StreamId {
    log::stream::<SwarmState>(id).expect("an id has only letters, digits and `_`")
}

#[cfg(test)]
mod tests;
