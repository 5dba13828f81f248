//! Inputs and outputs of the tools of DAGs.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{RunId, User, WorkspaceId};
use hivekeep_manifest::{MAX_TEXT_BYTES, common::JsonObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::run::GoalStatus;

/// Longest wait.
const MAX_WAIT_SECS: u64 = 3_600;

/// Run a DAG: steps with their order in one YAML file. The run goes on when you are gone or the daemon restarts;
/// dag_runs shows how far it is and waits for its end. `read_schema` of `dag` shows the keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DagStart {
    /// Text of the DAG. Give this or `file`.
    #[schemars(length(max = MAX_TEXT_BYTES))]
    pub(super) yaml: Option<String>,
    /// Defaults of its keys, of a DAG in `yaml`. Those of a file are `base.yaml` beside it.
    #[schemars(length(max = MAX_TEXT_BYTES))]
    pub(super) base: Option<String>,
    /// File of the DAG in `place`. A name alone, as `nightly`, is `dags/nightly.yaml` there.
    pub(super) file: Option<String>,
    /// Name of a DAG whose text has none. Default: that of its file.
    #[schemars(length(min = 1, max = 40))]
    pub(super) name: Option<String>,
    /// Place of the file and of the commands, as file tools name it. Default: with `file` your default place, with
    /// `yaml` a workspace that is made for the run and gone with it.
    pub(super) place: Option<String>,
    /// Parameters: an object by name, or a list by place.
    pub(super) params: Option<Value>,
    /// Queue that the run waits in for its place. Default: that of the DAG, if it has one.
    #[schemars(length(min = 1, max = 100))]
    pub(super) queue: Option<String>,
    /// Priority in the queue: a greater one comes first.
    #[serde(default)]
    #[schemars(range(min = -100, max = 100))]
    pub(super) priority: i32,
}

/// Run that was begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagStarted {
    /// Id of the run.
    pub(super) run_id: RunId,
    /// Name of the DAG.
    pub(super) name: String,
    /// `started`.
    pub(super) status: &'static str,
    /// References in its texts to what is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notices: Vec<String>,
}

/// Look at runs of DAGs: the newest, or with `run_id` one with its steps. `wait_secs` waits for the end of that one,
/// `compare_with` shows what differs from another one.
/// `dags` shows instead the DAGs of watched folders, which begin by themselves.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DagRunsAsked {
    /// Id of the run to show.
    pub(super) run_id: Option<String>,
    /// Runs of the DAG of this name alone, or that DAG.
    pub(super) name: Option<String>,
    /// True to list the DAGs of watched folders.
    #[serde(default)]
    pub(super) dags: bool,
    /// Id of another run: what differs between that and the one of `run_id`, instead of its steps.
    pub(super) compare_with: Option<String>,
    /// Seconds to wait for the end of the run of `run_id`.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT_SECS))]
    pub(super) wait_secs: u64,
    /// Most runs, DAGs, steps of a run, or differences.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: usize,
    /// Steps of the run, DAGs, or differences, to pass over.
    #[serde(default)]
    pub(super) offset: usize,
}

fn twenty() -> usize {
    20
}

/// Runs, or one of them.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct DagRunsShown {
    /// Runs, the newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runs: Option<Vec<DagRunRow>>,
    /// Number of runs, or of DAGs, in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total: Option<usize>,
    /// The run of `run_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<Box<DagRunShown>>,
    /// The run of `run_id` beside that of `compare_with`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared: Option<Box<DagRunsCompared>>,
    /// DAGs of watched folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dags: Option<Vec<DagListed>>,
}

/// A DAG of a watched folder.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagListed {
    /// Name.
    pub(super) name: String,
    /// Place of its file.
    pub(super) place: String,
    /// Path of its file there.
    pub(super) file: String,
    /// Owner of the file, whose runs they are.
    pub(super) owner: User,
    /// Problem of a file that is no DAG, or of its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// Schedule, as the file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schedule: Option<Value>,
    /// Next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_run_at: Option<DateTime<Utc>>,
    /// Event of its last time: `schedule_begun`, `schedule_skipped`, `schedule_stopped`, `schedule_missed` or
    /// `schedule_failed`, with what it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_time: Option<DagEvent>,
    /// Its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_run: Option<DagRunRow>,
}

/// A run in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagRunRow {
    /// Id.
    pub(super) run_id: RunId,
    /// Name of the DAG.
    pub(super) name: String,
    /// `queued`, `pending`, `running`, `succeeded`, `partly_succeeded`, `failed`, `aborted` or `rejected`.
    pub(super) status: &'static str,
    /// Reason of its beginning: `start`, `schedule`, `webhook`, or `parent` for a run of another one's step.
    pub(super) trigger: &'static str,
    /// Steps that wait for a person, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<String>,
    /// Beginning.
    pub(super) started_at: DateTime<Utc>,
    /// End.
    pub(super) ended_at: Option<DateTime<Utc>>,
}

/// A run with its steps.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagRunShown {
    /// The run.
    #[serde(flatten)]
    pub(super) row: DagRunRow,
    /// Times that it was retried.
    pub(super) retries: u32,
    /// Parameters with their values.
    pub(super) params: Map<String, Value>,
    /// Workspace of its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace_id: Option<WorkspaceId>,
    /// Run of whose step it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_run_id: Option<RunId>,
    /// Outputs of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<Value>,
    /// Reason why it could not begin, or stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Cause of a stop: `request`, `timeout`, or `conditions` that did not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped_by: Option<&'static str>,
    /// Steps in the order of the text, handlers behind them.
    pub(super) steps: Vec<DagStepShown>,
    /// Number of steps in all.
    pub(super) total_steps: usize,
    /// Tasks of its agent, of a DAG of type `agent`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tasks: Vec<DagGoalShown>,
    /// Decisions of its agent, the last ones: `step`, `ask_user`, `task_status`, `rejected` or `stalled`, with why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<String>,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<&'static str>,
}

/// A run beside another one.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagRunsCompared {
    /// The other one.
    pub(super) with: DagRunRow,
    /// Values that differ, in the order of the steps; times and durations are none.
    pub(super) differences: Vec<DagDifference>,
    /// Number of differences in all.
    pub(super) total: usize,
}

/// A value that differs between two runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagDifference {
    /// Step; none for a value of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    /// `name`, `status`, `error`, `tries`, `exit_code`, `params.NAME` or `outputs.NAME`.
    pub(super) field: String,
    /// Value in the run of `run_id`; null where it has none.
    pub(super) value: Value,
    /// The same in the other one.
    pub(super) other: Value,
}

/// A task of an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagGoalShown {
    /// Name.
    pub(super) name: String,
    /// `open`, `completed`, `skipped` or `failed`.
    pub(super) status: GoalStatus,
    /// Reason, as the agent has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// A step of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagStepShown {
    /// Name.
    pub(super) name: String,
    /// `open`, `running`, `pauses`, `waiting`, `succeeded`, `failed`, `skipped`, `aborted` or `rejected`.
    pub(super) status: &'static str,
    /// Steps that it follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) follows: Vec<String>,
    /// Part of a handler: `init`, `wait`, `success`, `failure`, `abort` or `exit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handler: Option<&'static str>,
    /// Tries.
    pub(super) tries: u32,
    /// Beginning of its last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<DateTime<Utc>>,
    /// End of its last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<DateTime<Utc>>,
    /// Exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    /// Outputs, by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) outputs: Map<String, Value>,
    /// Reason of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Runs that it began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<RunId>,
}

/// Change of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DagAction {
    /// Ends its commands; its handlers run.
    Stop,
    /// Does everything again.
    Retry,
    /// Does again what did not succeed, and all behind that.
    RetryFailed,
    /// Does one step again, without what is behind it.
    RetryStep,
    /// Does one step again, and all behind it.
    RetryFrom,
    /// Begins another run of the same text with the same parameters.
    Reschedule,
    /// Makes a fork of the machine that a failed step with `fork: true` left, for 8 hours: `workspace_id`.
    Debug,
    /// Says yes to a step that waits for a person, with its `values`.
    Approve,
    /// Says no to such a step: the run ends as rejected.
    Reject,
    /// Has such a step done again, from the step on that its approval names.
    PushBack,
}

/// Change a run: stop it; retry it when it is over (steps that succeeded keep their results); begin it anew; or decide
/// on a step that waits for a person.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DagControl {
    /// Id of the run.
    pub(super) run_id: String,
    /// Change to make.
    pub(super) action: DagAction,
    /// Name or id of the step, for actions on one.
    pub(super) step: Option<String>,
    /// Values that the step asks for, by name.
    pub(super) values: Option<JsonObject>,
    /// The same as texts, which become what the step's form says.
    pub(super) texts: Option<BTreeMap<String, String>>,
    /// Reason of a decision, for people.
    #[schemars(length(max = 4_096))]
    pub(super) reason: Option<String>,
}

/// Run that was told.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagControlled {
    /// Id of the run that goes on: with `reschedule` the new one.
    pub(super) run_id: RunId,
    /// Workspace to look into, of `debug`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace_id: Option<WorkspaceId>,
    /// False where nothing was left to do.
    pub(super) changed: bool,
    /// Status.
    pub(super) status: &'static str,
}

/// Read what a step of a run wrote, while it runs or after; without `step` what happened in the run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DagLogs {
    /// Id of the run.
    pub(super) run_id: String,
    /// Name or id of the step.
    pub(super) step: Option<String>,
    /// First byte of each stream, or first event, from 0.
    #[serde(default)]
    pub(super) offset: u64,
    /// Most events.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: usize,
}

fn fifty() -> usize {
    50
}

/// Output of a step, or the events of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagLogsRead {
    /// Id of the run.
    pub(super) run_id: RunId,
    /// Status of the run, or of the step.
    pub(super) status: &'static str,
    /// Standard output of the step's last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stdout: Option<DagStreamRead>,
    /// Standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stderr: Option<DagStreamRead>,
    /// Events, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) events: Option<Vec<DagEvent>>,
    /// Number of events in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total: Option<usize>,
}

/// Part of a stream.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct DagStreamRead {
    /// Text from the offset on.
    pub(super) text: String,
    /// Offset of what follows.
    pub(super) next_offset: u64,
    /// Bytes that were written in all.
    pub(super) total_bytes: u64,
    /// File in the workspace of the run with up to 16 MiB of it, while that workspace is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
}

/// An event of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DagEvent {
    /// Place in the run's log.
    pub(super) sequence: u64,
    /// Kind of the event.
    pub(super) event_type: &'static str,
    /// More about it.
    pub(super) payload: Value,
    /// Time.
    pub(super) recorded_at: DateTime<Utc>,
}
