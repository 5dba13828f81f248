//! The tools of tasks: executions of agents, begun, waited for, listed, cancelled and removed.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, Layer, SessionId, ToolError, User, tools};
use hivekeep_manifest::{common::JsonObject, parse_agent};
use hivekeep_ports::ModelUse;
use hivekeep_runtime::{
    runs::{RunCaller, RunStatus, SequencedEvent},
    saga::SagaView,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    codes,
    execution::{
        ExecutionSaga,
        plan::{ExecutionPlan, ExecutionRequest},
        state::{ExecutionBegun, ExecutionEnd, Record},
    },
    tools::{AgentService, invalid},
};

type Answer<T> = Result<T, ToolError>;
type View = SagaView<ExecutionSaga>;

/// Longest wait whose length nobody asked for: clients give up on calls of a minute.
const WAIT_SECS: u64 = 45;
/// Longest wait.
const MAX_WAIT_SECS: u64 = 3_600;
/// Most events of one page.
const MAX_EVENTS: usize = 200;
/// Characters of an intent in a list.
const SUMMARY_CHARS: usize = 160;

/// Run an agent. It works by itself, in a session of its own that can do nothing yours cannot, and goes on when you
/// are gone or the daemon restarts. aegis.task.wait waits for its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskExecute {
    /// Id or name of the agent. Your own agent of a name comes before one that is everybody's.
    agent_id: String,
    /// Task in plain words.
    #[schemars(length(max = 65_536))]
    intent: Option<String>,
    /// Input, which has to fit the agent's `input_schema`; `prompt` is the user's request.
    input: Option<JsonObject>,
    /// Version of the agent, as `1.2.3`. Default: the latest.
    #[serde(default = "latest")]
    version: Option<String>,
}

fn latest() -> Option<String> {
    Some("latest".to_owned())
}

/// Execution that was begun.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskStarted {
    /// Id, for the other tools of tasks.
    execution_id: ExecutionId,
    /// `started`.
    status: &'static str,
    /// Agent that is run.
    agent_id: AgentId,
    /// Version of the agent that is run.
    version: String,
    /// Kind of the model's provider; `scripted` is not a model.
    provider_kind: &'static str,
}

/// Read the state of an execution, and its result if it is over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskStatus {
    /// Id of the execution.
    execution_id: String,
}

/// State of an execution.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskState {
    /// Id of the execution.
    execution_id: ExecutionId,
    /// Agent.
    agent_id: AgentId,
    /// `pending`, `running`, `completed`, `failed`, `cancelled`, or after a wait `timed_out`: it goes on.
    status: &'static str,
    /// Iterations that were begun.
    iteration_count: usize,
    /// Result, or the last text of the model so far.
    last_output: Option<String>,
    /// Error that it failed with, or the last iteration.
    last_error: Option<String>,
    /// Stable code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    /// Tokens read and written so far.
    tokens: u64,
    /// Time at which it was begun.
    started_at: DateTime<Utc>,
    /// Time at which it ended.
    ended_at: Option<DateTime<Utc>>,
    /// Next step of the caller, where it is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
}

/// List executions, the newest first: your own, or all as an operator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskList {
    /// Id or name of an agent whose executions are listed. Default: of all agents.
    agent_id: Option<String>,
    /// Most executions to show, 1 to 200.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    limit: usize,
}

fn twenty() -> usize {
    20
}

/// Executions.
#[derive(Debug, Serialize, JsonSchema)]
struct TasksListed {
    /// The newest first.
    executions: Vec<TaskRow>,
    /// How many there are in all.
    total: usize,
}

/// An execution.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskRow {
    /// Id.
    id: ExecutionId,
    /// Agent.
    agent_id: AgentId,
    /// Name of the agent.
    agent: String,
    /// Version of the agent.
    version: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// Beginning of the task in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    /// User whose it is.
    owner: User,
    /// Time at which it was begun.
    started_at: DateTime<Utc>,
    /// Time at which it ended.
    ended_at: Option<DateTime<Utc>>,
}

/// Read the events of an execution in order: its prompts, each answer of the model, each call with its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskLogs {
    /// Id of the execution.
    execution_id: String,
    /// Most events to show, 1 to 200.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = MAX_EVENTS))]
    limit: usize,
    /// Events to leave out at the beginning.
    #[serde(default)]
    offset: usize,
}

fn fifty() -> usize {
    50
}

/// Events of an execution.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskEvents {
    /// Name of the tool.
    tool: &'static str,
    /// Id of the execution.
    execution_id: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// Events of the page, in order.
    events: Vec<TaskEvent>,
    /// How many there are in all.
    total: usize,
    /// Most events that were asked for.
    limit: usize,
    /// Events left out at the beginning.
    offset: usize,
}

/// An event of an execution.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskEvent {
    /// Place in the execution, from 1 and without a gap.
    sequence: u64,
    /// Name of what happened, as `llm_interaction`.
    event_type: &'static str,
    /// Facts about it.
    payload: Value,
    /// Time of the event.
    recorded_at: DateTime<Utc>,
}

/// Cancel an execution. Its calls are cut short, and its session ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskCancel {
    /// Id of the execution.
    execution_id: String,
}

/// Outcome of a cancellation.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskCancelled {
    /// Id of the execution.
    execution_id: String,
    /// False if it was over already.
    cancelled: bool,
    /// Why it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Remove an execution that is over, with its events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskRemove {
    /// Id of the execution.
    execution_id: String,
}

/// Outcome of a removal.
#[derive(Debug, Serialize, JsonSchema)]
struct TaskRemoved {
    /// Id of the execution.
    execution_id: String,
    /// False if it is not over.
    removed: bool,
    /// Why it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Wait until an execution is over, and read its result. Without timeout_seconds at most 45 s; `timed_out` says that
/// it goes on: wait again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskWait {
    /// Id of the execution.
    execution_id: String,
    /// Seconds between two looks. Nothing is polled here: the answer comes at once.
    #[serde(default = "ten_secs")]
    #[schemars(range(min = 1))]
    #[serde(rename = "poll_interval_seconds")]
    _poll_interval_seconds: u64,
    /// Longest wait in seconds. Default: 45.
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    timeout_seconds: Option<u64>,
}

fn ten_secs() -> u64 {
    10
}

/// Wait for an execution of an agent: the same as aegis.task.wait.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentWait {
    /// Id of the execution.
    execution_id: String,
    /// Seconds between two looks. Nothing is polled here: the answer comes at once.
    #[serde(default = "ten_secs")]
    #[schemars(range(min = 1))]
    #[serde(rename = "poll_interval_seconds")]
    _poll_interval_seconds: u64,
    /// Longest wait in seconds. Default: 45.
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    timeout_seconds: Option<u64>,
}

/// Read what an agent did: when each of its executions was begun and ended, the oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentLogs {
    /// Id or name of the agent.
    agent_id: String,
    /// Most events to show, 1 to 200.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = MAX_EVENTS))]
    limit: usize,
    /// Events to leave out at the beginning.
    #[serde(default)]
    offset: usize,
}

/// Events of an agent.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentEvents {
    /// Name of the tool.
    tool: &'static str,
    /// Id of the agent.
    agent_id: String,
    /// Events of the page, the oldest first.
    events: Vec<AgentEvent>,
    /// How many there are in all.
    total: usize,
    /// Most events that were asked for.
    limit: usize,
    /// Events left out at the beginning.
    offset: usize,
}

/// An event of an agent.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentEvent {
    /// `task_started`, `task_completed`, `task_failed` or `task_cancelled`.
    event_type: &'static str,
    /// Execution, with the version of the agent and what it was asked.
    payload: Value,
    /// Time of the event.
    recorded_at: DateTime<Utc>,
}

tools! { pub(crate) FAMILY: "tasks" for service AgentService, singleton agents;
    task_execute: TaskExecute => TaskStarted = AgentService::execute {
        name: "aegis.task.execute", title: "Run an agent", open_world: true,
        told_by: Some("aegis.task.list"),
    };
    task_status: TaskStatus => TaskState = AgentService::status {
        name: "aegis.task.status", title: "State of an execution", effect: Read,
    };
    task_list: TaskList => TasksListed = AgentService::list_tasks {
        name: "aegis.task.list", title: "List executions", effect: Read,
    };
    task_cancel: TaskCancel => TaskCancelled = AgentService::cancel {
        name: "aegis.task.cancel", title: "Cancel an execution", effect: Idempotent,
    };
    task_remove: TaskRemove => TaskRemoved = AgentService::remove {
        name: "aegis.task.remove", title: "Remove an execution", effect: Destroy,
        tier: Tier::Operator,
    };
    task_logs: TaskLogs => TaskEvents = AgentService::logs {
        name: "aegis.task.logs", title: "Events of an execution", effect: Read,
    };
    task_wait: TaskWait => TaskState = AgentService::wait {
        name: "aegis.task.wait", title: "Wait for an execution", effect: Read,
        limit_secs: wait_secs,
    };
}

tools! { pub(crate) AGENT_FAMILY: "agents" for service AgentService, singleton agents;
    agent_logs: AgentLogs => AgentEvents = AgentService::agent_logs {
        name: "aegis.agent.logs", title: "What an agent did", effect: Read,
    };
    agent_wait: AgentWait => TaskState = AgentService::agent_wait {
        name: "aegis.agent.wait", title: "Wait for an agent", effect: Read,
        limit_secs: wait_secs,
    };
}

fn wait_secs(input: &Value) -> Option<u64> {
    input.get("timeout_seconds")?.as_u64()
}

impl AgentService {
    async fn execute(self: Arc<Self>, cx: CallCx, input: TaskExecute) -> Answer<TaskStarted> {
        let TaskExecute { agent_id, intent, input, version } = input;
        let caller = self.caller(&cx)?;
        let version = version.as_deref().filter(|version| *version != "latest");
        let (agent_id, _, kept) = self.agents.find(caller, &agent_id, version)?;
        let parse = tokio::task::spawn_blocking(move || parse_agent(&kept.text)).await;
        let parse = parse.map_err(|panic| ToolError::internal(panic.to_string()))?;
        let manifest = parse.map_err(|problems| invalid(&problems))?;
        let request = ExecutionRequest { intent, input: input.unwrap_or_default() };
        let mut plan = ExecutionPlan::of(agent_id, manifest, request, &self.options)?;
        let sources = self.models.resolve(&plan.model, ModelUse::Generate)?;
        plan.tools = self.shown(&cx, &plan.tools);
        let (id, version) = (ExecutionId::new(), plan.version.clone());
        let begun = ExecutionBegun {
            id,
            user: caller.user,
            session: cx.session,
            payer: self.payer(&cx),
            plan,
            at: Utc::now(),
        };
        self.runs.begin(id, Record::Begun(Box::new(begun))).await?;
        Ok(TaskStarted {
            execution_id: id,
            status: "started",
            agent_id,
            version,
            provider_kind: sources.first().map_or("unknown", |source| source.provider_kind),
        })
    }

    /// Session whose budget of models pays: that of an execution's own session is its asker's.
    fn payer(&self, cx: &CallCx) -> SessionId {
        let all = RunCaller { user: User::Nobody, operator: true };
        let (open, _) = self.runs.list(all, None, usize::MAX);
        let asks = |view: &&View| view.state.child == Some(cx.session);
        let above = open.iter().map(|(_, view)| view).find(asks);
        above.map_or(cx.session, |view| view.state.begun.payer)
    }

    async fn status(self: Arc<Self>, cx: CallCx, input: TaskStatus) -> Answer<TaskState> {
        Ok(state(&self.runs.get(self.run_caller(&cx), &input.execution_id)?))
    }

    async fn list_tasks(self: Arc<Self>, cx: CallCx, input: TaskList) -> Answer<TasksListed> {
        let group = input.agent_id.map(|agent| self.agent_id(&cx, &agent)).transpose()?;
        let (rows, total) = self.runs.list(self.run_caller(&cx), group.as_deref(), input.limit);
        Ok(TasksListed {
            executions: rows.iter().map(|(id, view)| row(*id, view)).collect(),
            total,
        })
    }

    async fn logs(self: Arc<Self>, cx: CallCx, input: TaskLogs) -> Answer<TaskEvents> {
        let TaskLogs { execution_id, limit, offset } = input;
        let caller = self.run_caller(&cx);
        let page = self.runs.events(caller, &execution_id, offset, limit).await?;
        let status = self.runs.get(caller, &execution_id)?.status().word();
        let event = |SequencedEvent { sequence, recorded_at, event }| TaskEvent {
            sequence,
            event_type: event.event_type,
            payload: event.payload,
            recorded_at,
        };
        Ok(TaskEvents {
            tool: cx.tool,
            execution_id,
            status,
            events: page.events.into_iter().map(event).collect(),
            total: page.total,
            limit,
            offset,
        })
    }

    async fn cancel(self: Arc<Self>, cx: CallCx, input: TaskCancel) -> Answer<TaskCancelled> {
        let (caller, execution_id) = (self.run_caller(&cx), input.execution_id);
        let cancelled = self.runs.cancel(caller, &execution_id).await?;
        let error = match cancelled {
            true => None,
            false => {
                Some(format!("it is {}", self.runs.get(caller, &execution_id)?.status().word()))
            }
        };
        Ok(TaskCancelled { execution_id, cancelled, error })
    }

    async fn remove(self: Arc<Self>, cx: CallCx, input: TaskRemove) -> Answer<TaskRemoved> {
        let execution_id = input.execution_id;
        let removed = self.runs.remove(self.run_caller(&cx), &execution_id).await?;
        let goes_on = || "it is not over: cancel it first by aegis.task.cancel".to_owned();
        Ok(TaskRemoved { execution_id, removed, error: (!removed).then(goes_on) })
    }

    async fn wait(self: Arc<Self>, cx: CallCx, input: TaskWait) -> Answer<TaskState> {
        let secs = input.timeout_seconds.unwrap_or(WAIT_SECS);
        let (view, timed_out) =
            self.runs.wait(&cx, &input.execution_id, Duration::from_secs(secs)).await?;
        let now = state(&view);
        if !timed_out {
            return Ok(now);
        }
        let next = "it goes on: call aegis.task.wait again, or aegis.task.cancel to end it";
        Ok(TaskState { status: "timed_out", next_step: Some(next.to_owned()), ..now })
    }

    async fn agent_wait(self: Arc<Self>, cx: CallCx, input: AgentWait) -> Answer<TaskState> {
        let AgentWait { execution_id, _poll_interval_seconds, timeout_seconds } = input;
        self.wait(cx, TaskWait { execution_id, _poll_interval_seconds, timeout_seconds }).await
    }

    async fn agent_logs(self: Arc<Self>, cx: CallCx, input: AgentLogs) -> Answer<AgentEvents> {
        let AgentLogs { agent_id, limit, offset } = input;
        let agent_id = self.agent_id(&cx, &agent_id)?;
        let (rows, _) = self.runs.list(self.run_caller(&cx), Some(&agent_id), usize::MAX);
        let mut events: Vec<_> =
            rows.iter().flat_map(|(id, view)| agent_events(*id, view)).collect();
        events.sort_by_key(|event| event.recorded_at);
        let total = events.len();
        let events = events.into_iter().skip(offset).take(limit).collect();
        Ok(AgentEvents { tool: cx.tool, agent_id, events, total, limit, offset })
    }

    fn run_caller(&self, cx: &CallCx) -> RunCaller {
        RunCaller::of(cx, &*self.sessions)
    }

    /// Id of an agent that the caller sees, or of one that may be deleted by now.
    fn agent_id(&self, cx: &CallCx, id_or_name: &str) -> Answer<String> {
        match self.agents.find(self.caller(cx)?, id_or_name, None) {
            Ok((id, ..)) => Ok(id.to_string()),
            Err(_) if id_or_name.parse::<AgentId>().is_ok() => Ok(id_or_name.to_owned()),
            Err(error) => Err(error),
        }
    }
}

fn state(view: &View) -> TaskState {
    let (state, plan) = (&view.state, &view.state.begun.plan);
    let last_output = match state.end.as_deref() {
        Some(ExecutionEnd::Completed { output }) => Some(output.clone()),
        _ => state.said.as_deref().map(str::to_owned),
    };
    let given_up = view.given_up.as_ref().filter(|_| state.end.is_none()).map(|why| {
        let message = format!("it stands still until the daemon's next start: {why}");
        ToolError::new(Layer::Actor, codes::EXECUTION_GIVEN_UP, message)
    });
    let error = given_up.as_ref().or(state.last_error());
    let status = view.status();
    let waits = (!status.is_over()).then(|| "aegis.task.wait waits for its result".to_owned());
    TaskState {
        execution_id: state.begun.id,
        agent_id: plan.agent_id,
        status: status.word(),
        iteration_count: state.iterations.len(),
        last_output,
        last_error: error.map(ToolError::to_text),
        error_code: error.map(|error| error.code.clone().into_owned()),
        tokens: state.tokens,
        started_at: state.begun.at,
        ended_at: state.ended_at,
        next_step: waits,
    }
}

fn row(id: ExecutionId, view: &View) -> TaskRow {
    let (begun, plan) = (&view.state.begun, &view.state.begun.plan);
    TaskRow {
        id,
        agent_id: plan.agent_id,
        agent: plan.agent.clone(),
        version: plan.version.clone(),
        status: view.status().word(),
        summary: summary(view),
        owner: begun.user,
        started_at: begun.at,
        ended_at: view.state.ended_at,
    }
}

fn summary(view: &View) -> Option<String> {
    let intent = view.state.begun.plan.intent.as_deref();
    intent.map(|intent| intent.chars().take(SUMMARY_CHARS).collect())
}

/// Events of an execution as its agent's log has them.
fn agent_events(id: ExecutionId, view: &View) -> Vec<AgentEvent> {
    let (state, plan) = (&view.state, &view.state.begun.plan);
    let payload = json!({ "execution_id": id, "version": plan.version, "summary": summary(view) });
    let began = AgentEvent {
        event_type: "task_started",
        payload: payload.clone(),
        recorded_at: state.begun.at,
    };
    let event_type = match view.status() {
        RunStatus::Completed => "task_completed",
        RunStatus::Failed => "task_failed",
        RunStatus::Cancelled => "task_cancelled",
        RunStatus::Pending | RunStatus::Running => return vec![began],
    };
    let Some(recorded_at) = state.ended_at else { return vec![began] };
    vec![began, AgentEvent { event_type, payload, recorded_at }]
}
