//! The tools of tasks: executions of agents, begun, waited for, listed, cancelled and removed.

mod types;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, Layer, SessionId, ToolError, User, tools};
use hivekeep_manifest::parse_agent;
use hivekeep_ports::ModelUse;
use hivekeep_runtime::{
    runs::{RunCaller, RunStatus, SequencedEvent},
    saga::SagaView,
};
use serde_json::{Value, json};

use self::types::{
    AgentEvent, AgentEvents, AgentLogs, AgentWait, TaskCancel, TaskCancelled, TaskEvent,
    TaskEvents, TaskExecute, TaskList, TaskLogs, TaskRemove, TaskRemoved, TaskRow, TaskStarted,
    TaskState, TaskStatus, TaskWait, TasksListed,
};
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
/// Characters of an intent in a list.
const SUMMARY_CHARS: usize = 160;

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
