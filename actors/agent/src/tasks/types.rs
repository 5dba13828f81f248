//! Inputs and outputs of the tools of tasks.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{AgentId, ExecutionId, User};
use hivekeep_manifest::{agent::AgentBudget, common::JsonObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::state::{ExecutionState, RelayedRequests};

/// Longest wait.
const MAX_WAIT_SECS: u64 = 3_600;
/// Most events of one page.
const MAX_EVENTS: usize = 200;

/// Run an agent. It works by itself, in a session of its own that can do nothing yours cannot, and goes on when you
/// are gone or the daemon restarts. aegis.task.wait waits for its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskExecute {
    /// Id or name of the agent. Your own agent of a name comes before one that is everybody's.
    pub(super) agent_id: String,
    /// Task in plain words.
    #[schemars(length(max = 65_536))]
    pub(super) intent: Option<String>,
    /// Input, which has to fit the agent's `input_schema`; `prompt` is the user's request.
    pub(super) input: Option<JsonObject>,
    /// Version of the agent, as `1.2.3`. Default: the latest.
    #[serde(default = "latest")]
    pub(super) version: Option<String>,
    /// True for a conversation: where it would end it waits for the next message, by agent_continue.
    #[serde(default)]
    pub(super) chat: bool,
    /// Bounds of its budget, at most those of the manifest. At one of them it waits for agent_continue.
    pub(super) budget: Option<AgentBudget>,
}

fn latest() -> Option<String> {
    Some("latest".to_owned())
}

/// Execution that was begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskStarted {
    /// Id, for the other tools of tasks.
    pub(super) execution_id: ExecutionId,
    /// `started`.
    pub(super) status: &'static str,
    /// Agent that is run.
    pub(super) agent_id: AgentId,
    /// Version of the agent that is run.
    pub(super) version: String,
    /// Kind of the model's provider; `scripted` is not a model.
    pub(super) provider_kind: &'static str,
}

/// Read the state of an execution, and its result if it is over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskStatus {
    /// Id of the execution.
    pub(super) execution_id: String,
}

/// Requests of a program to its model.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ModelRequests {
    /// Requests that were sent to the provider.
    asked: u64,
    /// Requests that came again byte for byte, and had the recorded answer.
    answered_from_record: u64,
    /// Requests that were sent again because their answer had been cut.
    cut: u64,
    /// Requests of a fork that had its `instruction` put in. None after the first request means that the program wrote
    /// its conversation anew, and goes on without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    with_words: Option<u64>,
}

impl ModelRequests {
    /// Requests of an execution; `None` for one that has none.
    pub(super) fn of(state: &ExecutionState) -> Option<Self> {
        let RelayedRequests { asked, replayed, cut, with_words, .. } = state.relayed;
        let program = state.forks.origin.as_ref().and_then(|origin| origin.program.as_ref());
        let with_words = program.filter(|it| !it.words.is_empty()).map(|_| with_words);
        let answered_from_record = replayed;
        (asked + replayed > 0).then_some(Self { asked, answered_from_record, cut, with_words })
    }
}

/// State of an execution.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskState {
    /// Id of the execution.
    pub(super) execution_id: ExecutionId,
    /// Agent.
    pub(super) agent_id: AgentId,
    /// `pending`, `running`, `completed`, `failed`, `cancelled`, or after a wait `timed_out`: it goes on.
    pub(super) status: &'static str,
    /// `budget` while it waits for more (agent_continue adds), `message` for a chat that waits for the next one,
    /// `approval` while a call waits for a person; null for an execution that waits for nobody.
    pub(super) waiting_for: Option<&'static str>,
    /// Iterations that were begun.
    pub(super) iteration_count: usize,
    /// Result, or the last text of the model so far.
    pub(super) last_output: Option<String>,
    /// Error that it failed with, or the last iteration.
    pub(super) last_error: Option<String>,
    /// Stable code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_code: Option<String>,
    /// Tokens read and written so far.
    pub(super) tokens: u64,
    /// Bounds of its budget, and what is used of each by it and by the executions that it began and that ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) budget: Vec<BudgetRow>,
    /// Requests of its program to a model, for an agent that is a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_requests: Option<ModelRequests>,
    /// Execution that it is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forked_from: Option<ExecutionId>,
    /// Time at which it was begun.
    pub(super) started_at: DateTime<Utc>,
    /// Time at which it ended.
    pub(super) ended_at: Option<DateTime<Utc>>,
    /// Next step of the caller, where it is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<String>,
}

/// A bound of a budget.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BudgetRow {
    /// `micro_usd` (millionths of a US dollar), `tokens`, `wall_secs` or `tool_calls`.
    pub(super) kind: &'static str,
    /// Amount that is used, or set aside.
    pub(super) used: u64,
    /// The bound.
    pub(super) limit: u64,
}

/// List executions, the newest first: your own, or all as an operator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskList {
    /// Id or name of an agent whose executions are listed. Default: of all agents.
    pub(super) agent_id: Option<String>,
    /// Most executions to show, 1 to 200.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: usize,
}

fn twenty() -> usize {
    20
}

/// Executions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TasksListed {
    /// The newest first.
    pub(super) executions: Vec<TaskRow>,
    /// How many there are in all.
    pub(super) total: usize,
}

/// An execution.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskRow {
    /// Id.
    pub(super) id: ExecutionId,
    /// Agent.
    pub(super) agent_id: AgentId,
    /// Name of the agent.
    pub(super) agent: String,
    /// Version of the agent.
    pub(super) version: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    pub(super) status: &'static str,
    /// `budget` or `approval` while it waits for that; null for an execution that waits for nobody.
    pub(super) waiting_for: Option<&'static str>,
    /// Beginning of the task in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
    /// User whose it is.
    pub(super) owner: User,
    /// Time at which it was begun.
    pub(super) started_at: DateTime<Utc>,
    /// Time at which it ended.
    pub(super) ended_at: Option<DateTime<Utc>>,
}

/// Read the events of an execution in order: its prompts, each answer of the model, each call with its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskLogs {
    /// Id of the execution.
    pub(super) execution_id: String,
    /// Most events to show, 1 to 200.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = MAX_EVENTS))]
    pub(super) limit: usize,
    /// Events to leave out at the beginning.
    #[serde(default)]
    pub(super) offset: usize,
}

fn fifty() -> usize {
    50
}

/// Events of an execution.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskEvents {
    /// Name of the tool.
    pub(super) tool: &'static str,
    /// Id of the execution.
    pub(super) execution_id: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    pub(super) status: &'static str,
    /// Events of the page, in order.
    pub(super) events: Vec<TaskEvent>,
    /// How many there are in all.
    pub(super) total: usize,
    /// Most events that were asked for.
    pub(super) limit: usize,
    /// Events left out at the beginning.
    pub(super) offset: usize,
}

/// An event of an execution.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskEvent {
    /// Place in the execution, from 1 and without a gap.
    pub(super) sequence: u64,
    /// Name of what happened, as `llm_interaction`.
    pub(super) event_type: &'static str,
    /// Facts about it.
    pub(super) payload: Value,
    /// Time of the event.
    pub(super) recorded_at: DateTime<Utc>,
}

/// Cancel an execution. Its calls are cut short, and its session ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskCancel {
    /// Id of the execution.
    pub(super) execution_id: String,
}

/// Outcome of a cancellation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskCancelled {
    /// Id of the execution.
    pub(super) execution_id: String,
    /// False if it was over already.
    pub(super) cancelled: bool,
    /// Why it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Remove an execution that is over, with its events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskRemove {
    /// Id of the execution.
    pub(super) execution_id: String,
}

/// Outcome of a removal.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskRemoved {
    /// Id of the execution.
    pub(super) execution_id: String,
    /// False if it is not over.
    pub(super) removed: bool,
    /// Why it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Wait until an execution is over, and read its result. Without timeout_seconds at most 45 s; `timed_out` says that
/// it goes on: wait again.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskWait {
    /// Id of the execution.
    pub(super) execution_id: String,
    /// Seconds between two looks. Nothing is polled here: the answer comes at once.
    #[serde(default = "ten_secs")]
    #[schemars(range(min = 1))]
    #[serde(rename = "poll_interval_seconds")]
    pub(super) _poll_interval_seconds: u64,
    /// Longest wait in seconds. Default: 45.
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    pub(super) timeout_seconds: Option<u64>,
}

fn ten_secs() -> u64 {
    10
}

/// Wait for an execution of an agent: the same as aegis.task.wait.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct AgentWait(pub(super) TaskWait);

/// Read what an agent did: when each of its executions was begun and ended, the oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentLogs {
    /// Id or name of the agent.
    pub(super) agent_id: String,
    /// Most events to show, 1 to 200.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = MAX_EVENTS))]
    pub(super) limit: usize,
    /// Events to leave out at the beginning.
    #[serde(default)]
    pub(super) offset: usize,
}

/// Events of an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentEvents {
    /// Name of the tool.
    pub(super) tool: &'static str,
    /// Id of the agent.
    pub(super) agent_id: String,
    /// Events of the page, the oldest first.
    pub(super) events: Vec<AgentEvent>,
    /// How many there are in all.
    pub(super) total: usize,
    /// Most events that were asked for.
    pub(super) limit: usize,
    /// Events left out at the beginning.
    pub(super) offset: usize,
}

/// An event of an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentEvent {
    /// `task_started`, `task_completed`, `task_failed`, `task_cancelled`; `schedule_set`, `schedule_begun`,
    /// `schedule_skipped` or `schedule_failed`.
    pub(super) event_type: &'static str,
    /// Execution, with the version of the agent and what it was asked; or the time of a schedule.
    pub(super) payload: Value,
    /// Time of the event.
    pub(super) recorded_at: DateTime<Utc>,
}
