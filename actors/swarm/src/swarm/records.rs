//! What is written of a swarm, in its stream `swarm/<swarm id>`.
//!
//! ```text
//! Planned ─► (WorkerMade ─► TaskEnded)* ─► Merging ─► Merged ─► Cleaned ─► snapshot: Kept
//!                                  Cancelled, at any time before the end
//! ```
//! Every record can be missing where a daemon died, and what it was about is done again then: a
//! fork is looked for by its name, a put task is not run twice, a merge finds what has arrived.
//! A record may be larger than the journal takes, so each is written in pieces, in one commit.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{
    SessionId, SwarmId, ToolError, WorkspaceId,
    ports::{TaskOutcome, TaskResult},
};
use hivekeep_store::{Journal, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools::{SwarmMerge, SwarmMergeStrategy, SwarmResult, SwarmWorkerKept, SwarmWorkerLeft};

const KIND: &str = "swarm";
/// Below [`LEAST_RECORD_KB`].
const PIECE_BYTES: usize = 256 * 1024;
/// What `store.max_record_kb` has to be at least.
pub(crate) const LEAST_RECORD_KB: usize = 512;
/// Before a piece that others follow, and before the last one.
const GOES_ON: u8 = b'+';
const LAST: u8 = b'.';

/// All that a swarm is going to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) id: SwarmId,
    pub(crate) owner: SessionId,
    pub(crate) at: DateTime<Utc>,
    pub(crate) golden: WorkspaceId,
    pub(crate) snapshot: String,
    pub(crate) tasks: Vec<Job>,
    /// Of every task.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) max_parallel: usize,
    pub(crate) timeout_secs: u64,
    pub(crate) cleanup: bool,
    pub(crate) allow_internet: Option<bool>,
    pub(crate) merge: Option<Merge>,
}

/// A task and the name that its fork will have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) workdir: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workspace: String,
}

/// A file that every fork gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) path: String,
    pub(crate) content: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Merge {
    pub(crate) strategy: SwarmMergeStrategy,
    pub(crate) target: WorkspaceId,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskEnd {
    /// Its guest told.
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
    /// It is going to be run.
    Planned(Box<Plan>),
    /// A task has its fork.
    WorkerMade { task: usize, workspace: WorkspaceId, fork_ms: u64 },
    /// A task is over.
    TaskEnded { task: usize, end: TaskEnd },
    /// It is to end now.
    Cancelled,
    /// The merge is about to be asked for.
    Merging,
    /// It has answered.
    Merged { merge: Box<SwarmMerge> },
    /// All forks are removed but these, and those that are kept.
    Cleaned {
        left: Vec<SwarmWorkerLeft>,
        #[serde(default)]
        kept: Vec<SwarmWorkerKept>,
    },
}

impl Record {
    /// Its name, without what it holds: commands, variables and outputs are in no log.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Planned(_) => "planned",
            Self::WorkerMade { .. } => "worker_made",
            Self::TaskEnded { .. } => "task_ended",
            Self::Cancelled => "cancelled",
            Self::Merging => "merging",
            Self::Merged { .. } => "merged",
            Self::Cleaned { .. } => "cleaned",
        }
    }
}

/// A task as far as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Task {
    pub(crate) worker: Option<WorkspaceId>,
    pub(crate) fork_ms: u64,
    /// Its guest has it. Not recorded: a put is repeated.
    pub(crate) started: bool,
    pub(crate) end: Option<Arc<TaskEnd>>,
    /// Its fork is removed. Not recorded: a removal is repeated.
    pub(crate) gone: bool,
}

/// What the records of a swarm that goes on add up to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) cancelled: bool,
    pub(crate) merging: bool,
    pub(crate) merged: Option<Arc<SwarmMerge>>,
    pub(crate) left: Option<Vec<SwarmWorkerLeft>>,
    pub(crate) kept: Vec<SwarmWorkerKept>,
}

/// What is kept of one that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) owner: SessionId,
    pub(crate) result: SwarmResult,
}

/// A swarm, going on or over.
#[derive(Debug, Clone)]
pub(crate) enum SwarmState {
    Going(Arc<State>),
    Over(Arc<Kept>),
}

impl State {
    pub(crate) fn new(plan: Plan) -> Self {
        let tasks = vec![Task::default(); plan.tasks.len()];
        let plan = Arc::new(plan);
        Self {
            plan,
            tasks,
            cancelled: false,
            merging: false,
            merged: None,
            left: None,
            kept: Vec::new(),
        }
    }

    /// Whether nothing is left that a cancellation could cut short.
    pub(crate) fn settled(&self) -> bool {
        let merges = self.plan.merge.is_some() && self.merged.is_none();
        !merges && self.tasks.iter().all(|task| task.end.is_some())
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

    /// Follows a record.
    ///
    /// # Errors
    /// The record, when it does not follow.
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::WorkerMade { task, workspace, fork_ms } if task < self.tasks.len() => {
                let task = &mut self.tasks[task];
                (task.worker, task.fork_ms) = (Some(workspace), fork_ms);
            }
            Record::TaskEnded { task, end } if task < self.tasks.len() => {
                self.tasks[task].end = Some(Arc::new(end));
            }
            // One that came too late changes nothing.
            Record::Cancelled => self.cancelled |= !self.settled(),
            Record::Merging => self.merging = true,
            Record::Merged { merge } => self.merged = Some(Arc::from(merge)),
            Record::Cleaned { left, kept } => (self.left, self.kept) = (Some(left), kept),
            other => return Err(other),
        }
        Ok(())
    }
}

pub(crate) fn stream(id: SwarmId) -> StreamId {
    StreamId::new(KIND, &id.to_string()).expect("an id has only letters, digits and `_`")
}

/// A record as the journal takes it, to be appended at once.
pub(crate) fn encode(record: &Record) -> Vec<Vec<u8>> {
    let bytes = serde_json::to_vec(record).expect("plain data");
    let count = bytes.len().div_ceil(PIECE_BYTES);
    let pieces = bytes.chunks(PIECE_BYTES).enumerate();
    let mark = |at| if at + 1 == count { LAST } else { GOES_ON };
    pieces.map(|(at, piece)| [&[mark(at)], piece].concat()).collect()
}

pub(crate) fn encode_kept(kept: &Kept) -> Vec<u8> {
    serde_json::to_vec(kept).expect("plain data")
}

/// Everything that is recorded.
pub(crate) struct Recorded {
    /// Swarms, with the bytes of those that are over.
    pub(crate) swarms: Vec<(SwarmState, usize)>,
    /// Streams that are of no swarm.
    pub(crate) strays: Vec<StreamId>,
}

/// All swarms. Blocks.
///
/// # Errors
/// In words, when a stream cannot be read.
pub(crate) fn load_all(journal: &Journal) -> Result<Recorded, String> {
    let streams = journal.streams(&format!("{KIND}/")).map_err(|error| error.to_string())?;
    let mut recorded = Recorded { swarms: Vec::new(), strays: Vec::new() };
    for stream in streams {
        match load(journal, &stream)? {
            Some(swarm) => recorded.swarms.push(swarm),
            None => recorded.strays.push(stream),
        }
    }
    Ok(recorded)
}

/// One swarm; `None` when it is forgotten. Blocks.
///
/// # Errors
/// In words, when its stream cannot be read.
pub(crate) fn load(
    journal: &Journal,
    stream: &StreamId,
) -> Result<Option<(SwarmState, usize)>, String> {
    let unreadable = |what: String| format!("the stream {stream}: {what}");
    let replay = journal.replay(stream).map_err(|error| unreadable(error.to_string()))?;
    if let Some((_, bytes)) = replay.snapshot {
        // A cancellation may have come behind it, too late.
        let kept: Kept =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        return Ok(Some((SwarmState::Over(Arc::new(kept)), bytes.len())));
    }
    let mut state: Option<State> = None;
    let mut whole = Vec::new();
    for (_, piece) in replay.records {
        let (mark, piece) = piece.split_first().ok_or_else(|| unreadable("nothing".to_owned()))?;
        whole.extend_from_slice(piece);
        if *mark == GOES_ON {
            continue;
        }
        let record =
            serde_json::from_slice(&whole).map_err(|error| unreadable(error.to_string()))?;
        whole.clear();
        // What came behind its end, of a swarm that is forgotten.
        if state.is_none() && !matches!(record, Record::Planned(_)) {
            tracing::warn!(%stream, record = record.kind(), "a swarm without a plan is no swarm");
            return Ok(None);
        }
        let followed = match (&mut state, record) {
            (none @ None, Record::Planned(plan)) => {
                *none = Some(State::new(*plan));
                Ok(())
            }
            (Some(state), record) => state.apply(record),
            (None, record) => Err(record),
        };
        followed.map_err(|record| unreadable(format!("{} does not follow", record.kind())))?;
    }
    Ok(state.map(|state| (SwarmState::Going(Arc::new(state)), 0)))
}
