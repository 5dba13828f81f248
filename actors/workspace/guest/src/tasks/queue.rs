//! State machine of the tasks: which is next, and what is known of each. Pure: the disk is
//! [`super::folder`]'s.
//!
//! Each change is decided here, written down by the caller, and only then [applied](TaskQueue::apply). What
//! a crash cuts short in between has not happened, or is found on the disk by the next daemon.

use std::collections::{BTreeMap, HashMap, HashSet};

use hivekeep_protocol::{GuestTaskOutcome, GuestTaskState, limits};
use serde::{Deserialize, Serialize};

/// Record of a task, as the disk holds it in every state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Place in the order of arrival; never used twice.
    pub seq: u64,
    /// Id of the task, as the host put it.
    pub task_id: String,
    /// Id of the message, as the host put it.
    pub message_id: String,
    /// Digest of the request.
    pub digest: String,
    /// Phase that was written down last.
    pub phase: TaskPhase,
    /// Run of the task, once made; the job's folder says whether it began.
    #[serde(default)]
    pub run: Option<TaskRun>,
}

/// The job that runs a task, written down before it can begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRun {
    /// Number of the job's folder; never another task's.
    pub number: u64,
    /// Id of the boot that the run belongs to.
    pub boot_id: String,
    /// Working directory of the command.
    pub workdir: Option<String>,
}

/// Phase that a task is known to have reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskPhase {
    /// No result yet.
    Open,
    /// A result that the host may not have.
    Ended(StoredTaskResult),
    /// A result that the host has.
    Acknowledged(StoredTaskResult),
}

/// Result of a task; never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTaskResult {
    /// Ascends in the order of the ends.
    pub number: u64,
    /// Outcome of the task.
    pub outcome: GuestTaskOutcome,
    /// See [`hivekeep_protocol::GuestTaskResult::workdir`].
    pub workdir: Option<String>,
    /// See [`hivekeep_protocol::GuestTaskResult::elapsed_ms`].
    pub elapsed_ms: u64,
    /// Bytes written to stdout and stderr.
    pub totals: [u64; 2],
}

/// Decision on a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutDecision {
    /// A new task, to be written down and applied.
    New(TaskRecord),
    /// A task that is known.
    Repeat(TaskRecord),
    /// There are [`limits::MAX_TASKS`].
    Full,
}

/// All tasks of a guest.
#[derive(Debug, Default)]
pub struct TaskQueue {
    tasks: BTreeMap<u64, TaskRecord>,
    by_id: HashMap<String, u64>,
    /// Open tasks that were started, or are being started.
    active: HashSet<u64>,
    last_seq: u64,
    last_number: u64,
}

impl TaskQueue {
    /// Empty queue that goes on with the places of this one: code that still handles an earlier task must not
    /// take another for it.
    pub fn successor(&self) -> Self {
        Self { last_seq: self.last_seq, ..Self::default() }
    }

    /// The task of a place.
    pub fn task(&self, seq: u64) -> Option<&TaskRecord> {
        self.tasks.get(&seq)
    }

    /// Open tasks, in order of arrival.
    pub fn open(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.values().filter(|task| task.phase == TaskPhase::Open)
    }

    /// Every task that is known, in order of arrival.
    pub fn all(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.values()
    }

    /// Whether there is such a task, without a result.
    pub fn is_open(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_some_and(|task| task.phase == TaskPhase::Open)
    }

    /// The task of an id.
    pub fn find(&self, task_id: &str) -> Option<&TaskRecord> {
        self.by_id.get(task_id).and_then(|seq| self.tasks.get(seq))
    }

    /// State of a task.
    pub fn state(&self, task: &TaskRecord) -> GuestTaskState {
        match task.phase {
            TaskPhase::Open if self.active.contains(&task.seq) => GuestTaskState::Running,
            TaskPhase::Open => GuestTaskState::Queued,
            TaskPhase::Ended(_) => GuestTaskState::Done,
            TaskPhase::Acknowledged(_) => GuestTaskState::Acknowledged,
        }
    }

    /// Decides on a put.
    pub fn put(&self, task_id: &str, message_id: &str, digest: String) -> PutDecision {
        if let Some(task) = self.find(task_id) {
            return PutDecision::Repeat(task.clone());
        }
        let acknowledged = |task: &&TaskRecord| matches!(task.phase, TaskPhase::Acknowledged(_));
        if self.tasks.len() - self.tasks.values().filter(acknowledged).count() >= limits::MAX_TASKS
        {
            return PutDecision::Full;
        }
        PutDecision::New(TaskRecord {
            seq: self.last_seq + 1,
            task_id: task_id.to_owned(),
            message_id: message_id.to_owned(),
            digest,
            phase: TaskPhase::Open,
            run: None,
        })
    }

    /// Whether a task that comes now may start at once.
    pub fn is_idle(&self) -> bool {
        self.active.len() < limits::TASKS_AT_ONCE && self.open().count() == self.active.len()
    }

    /// Puts a started task that never began back to wait for its turn.
    pub fn requeue(&mut self, seq: u64) {
        self.active.remove(&seq);
    }

    /// The task that is started now, if any may be: the first to arrive of those that wait.
    pub fn start_next(&mut self) -> Option<u64> {
        if self.active.len() >= limits::TASKS_AT_ONCE {
            return None;
        }
        let next = self.open().map(|task| task.seq).find(|seq| !self.active.contains(seq))?;
        self.active.insert(next);
        Some(next)
    }

    /// Notes that a task runs already. More than the usual number may run for a while.
    pub fn runs_already(&mut self, seq: u64) {
        self.active.insert(seq);
    }

    /// A task that ended, to be written down and applied; `None` when it had ended before.
    pub fn end(&self, seq: u64, end: impl FnOnce(u64) -> StoredTaskResult) -> Option<TaskRecord> {
        let task = self.tasks.get(&seq).filter(|task| task.phase == TaskPhase::Open)?;
        Some(TaskRecord { phase: TaskPhase::Ended(end(self.last_number + 1)), ..task.clone() })
    }

    /// A task whose result the host has, to be written down and applied; `None` when that is
    /// known, or there is no result.
    pub fn acknowledge(&self, task_id: &str) -> Option<TaskRecord> {
        let task = self.find(task_id)?;
        let TaskPhase::Ended(ended) = &task.phase else { return None };
        Some(TaskRecord { phase: TaskPhase::Acknowledged(ended.clone()), ..task.clone() })
    }

    /// Applies what was written down.
    pub fn apply(&mut self, task: TaskRecord) {
        self.last_seq = self.last_seq.max(task.seq);
        if let TaskPhase::Ended(ended) | TaskPhase::Acknowledged(ended) = &task.phase {
            self.last_number = self.last_number.max(ended.number);
            self.active.remove(&task.seq);
        }
        self.by_id.insert(task.task_id.clone(), task.seq);
        self.tasks.insert(task.seq, task);
    }

    /// Acknowledged tasks in the order in which they ended.
    pub fn acknowledged(&self) -> Vec<&TaskRecord> {
        let mut all: Vec<_> = self
            .tasks
            .values()
            .filter_map(|task| match &task.phase {
                TaskPhase::Acknowledged(ended) => Some((ended.number, task)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, task)| task).collect()
    }

    /// Forgets the oldest acknowledged tasks beyond [`limits::MAX_TASKS_REMEMBERED`]. What the
    /// disk has of them may go.
    pub fn forget(&mut self) -> Vec<TaskRecord> {
        let known = self.acknowledged();
        let beyond = known.len().saturating_sub(limits::MAX_TASKS_REMEMBERED);
        let gone: Vec<_> = known[..beyond].iter().map(|task| task.seq).collect();
        let gone: Vec<_> = gone.iter().filter_map(|seq| self.tasks.remove(seq)).collect();
        for task in &gone {
            self.by_id.remove(&task.task_id);
        }
        gone
    }

    /// Results beyond a number that were not acknowledged, in their order.
    pub fn results(&self, after: u64) -> Vec<(&TaskRecord, &StoredTaskResult)> {
        let mut all: Vec<_> = self
            .tasks
            .values()
            .filter_map(|task| match &task.phase {
                TaskPhase::Ended(ended) if ended.number > after => Some((task, ended)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(_, ended)| ended.number);
        all
    }
}

#[cfg(test)]
mod tests;
