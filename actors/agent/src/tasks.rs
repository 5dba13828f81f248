//! The tools of tasks: executions of agents, begun, waited for, listed, cancelled and removed.

mod asking;
mod best;
mod chats;
mod compare;
mod continuation;
mod forks;
mod replay;
mod trees;
pub(crate) mod types;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, Layer, SessionId, ToolError, User, tools};
use hivekeep_manifest::agent::AgentBudget;
use hivekeep_manifest_registry::RegistryCaller;
use hivekeep_ports::{ModelRelay, ModelSource, ModelUse};
use hivekeep_runtime::{
    runs::{RunCaller, RunStatus, SequencedEvent},
    saga::SagaView,
};
use serde_json::{Value, json};

use self::types::{
    AgentEvent, AgentEvents, AgentLogs, AgentWait, BudgetRow, ModelRequests, TaskCancel,
    TaskCancelled, TaskEvent, TaskEvents, TaskExecute, TaskList, TaskLogs, TaskRemove, TaskRemoved,
    TaskRow, TaskStarted, TaskState, TaskStatus, TaskWait, TasksListed,
};
pub(crate) use self::{
    compare::COMPARE_FAMILY, continuation::CONTINUE_FAMILY, forks::FORK_FAMILY,
    replay::REPLAY_FAMILY,
};
use crate::{
    codes,
    execution::{
        ExecutionSaga,
        account::{BudgetAmounts, BudgetKind},
        judge::stands_still,
        plan::{ExecutionPlan, ExecutionRequest, MachineHost},
        relatives::{self, DAEMON},
        state::{ExecutionBegun, ExecutionEnd, ExecutionState, Record},
        tree::MAX_DEPTH,
    },
    tools::AgentService,
};

type Answer<T> = Result<T, ToolError>;
type View = SagaView<ExecutionSaga>;

/// Longest wait whose length nobody asked for: clients give up on calls of a minute.
const WAIT_SECS: u64 = 45;
/// Characters of an intent that name a chat.
const NAME_CHARS: usize = 50;
/// Characters of an intent in a list.
const SUMMARY_CHARS: usize = 160;

tools! { pub(crate) FAMILY: "tasks" for service AgentService, singleton agents;
    task_execute: TaskExecute => TaskStarted = AgentService::execute {
        name: "aegis.task.execute", title: "Run an agent", open_world: true,
        told_by: Some("aegis.task.list"),
    };
    task_status: TaskStatus => TaskState = AgentService::status {
        name: "aegis.task.status", title: "State of an execution", effect: Read,
        rate: RateClass::File,
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
        rate: RateClass::File,
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
        let TaskExecute { agent_id, intent, input, version, chat, budget } = input;
        let version = version.as_deref().filter(|version| *version != "latest");
        let said = || intent.as_deref().unwrap_or(&agent_id).chars().take(NAME_CHARS).collect();
        let chat = chat.then(said);
        let (input, host) = (input.unwrap_or_default(), MachineHost::default());
        let request = ExecutionRequest { intent, input, chat, host, scheduled_for: None };
        self.start(&cx, &agent_id, version, request, budget.unwrap_or_default()).await
    }

    /// Begins an execution for a caller.
    pub(crate) async fn start(
        &self,
        cx: &CallCx,
        agent: &str,
        version: Option<&str>,
        request: ExecutionRequest,
        budget: AgentBudget,
    ) -> Answer<TaskStarted> {
        self.start_as(ExecutionId::new(), cx, agent, version, request, budget).await
    }

    /// Begins the execution of an id.
    pub(crate) async fn start_as(
        &self,
        id: ExecutionId,
        cx: &CallCx,
        agent: &str,
        version: Option<&str>,
        request: ExecutionRequest,
        budget: AgentBudget,
    ) -> Answer<TaskStarted> {
        let (agent_id, manifest) = self.manifest(self.caller(cx)?, agent, version).await?;
        let request = ExecutionRequest { host: self.host(&manifest.spec), ..request };
        let plan = ExecutionPlan::of(agent_id, manifest, request, &self.options)?;
        let version = plan.version.clone();
        let sources = self.start_planned(id, cx, plan, &budget).await?;
        Ok(TaskStarted {
            execution_id: id,
            status: "started",
            agent_id,
            version,
            provider_kind: sources.first().map_or("unknown", |source| source.provider_kind),
        })
    }

    /// Begins the execution of a plan; the sources of its model.
    pub(crate) async fn start_planned(
        &self,
        id: ExecutionId,
        cx: &CallCx,
        mut plan: ExecutionPlan,
        budget: &AgentBudget,
    ) -> Answer<Vec<ModelSource>> {
        let sources = self.complete(cx, &mut plan).await?;
        self.plan_judges(cx, &mut plan).await?;
        let begun = self.first_record(cx, id, plan, budget)?;
        self.begin(begun, Vec::new()).await?;
        Ok(sources)
    }

    /// Completes a plan with what the caller's session may have, reach and hand on; the sources of its model.
    ///
    /// # Errors
    /// Those of what the session may not have, or what is not there.
    pub(crate) async fn complete(
        &self,
        cx: &CallCx,
        plan: &mut ExecutionPlan,
    ) -> Answer<Vec<ModelSource>> {
        self.may_have(cx, plan.machine.as_ref())?;
        let mut sources = self.shared.models.resolve(&plan.model, ModelUse::Generate)?;
        if let Some(program) = &mut plan.program {
            let relay = self.shared.daemon.ports.need::<dyn ModelRelay>()?;
            program.choose(&sources, |provider, api| relay.speaks(provider, api))?;
            sources.retain(|source| source.provider == program.provider);
        }
        plan.tools = self.shown(cx, &plan.tools);
        self.may_read(cx, plan)?;
        // Boxed: the agent of a handler is completed in turn.
        Box::pin(self.plan_after(cx, plan)).await?;
        Ok(sources)
    }

    /// First record of an execution that a caller begins, with a budget within those above it.
    fn first_record(
        &self,
        cx: &CallCx,
        id: ExecutionId,
        mut plan: ExecutionPlan,
        budget: &AgentBudget,
    ) -> Answer<ExecutionBegun> {
        let (caller, above) = (self.caller(cx)?, self.above(cx)?);
        plan.budget = self.budget(caller, &plan.budget, budget)?;
        if let Some(above) = &above {
            plan.budget = plan.budget.within(&time_left(above));
        }
        Ok(ExecutionBegun {
            id,
            user: caller.user,
            session: cx.session,
            payer: above.as_ref().map_or(cx.session, |above| above.begun.payer),
            parent: above.as_ref().map(|above| above.begun.id),
            counts_calls: above.as_ref().is_some_and(ExecutionState::counts_calls),
            judges: false,
            plan,
            at: Utc::now(),
        })
    }

    /// Begins an execution, and has its parent know of it: one that ends meanwhile ends this one, too.
    async fn begin(&self, begun: ExecutionBegun, more: Vec<Record>) -> Answer<()> {
        let (id, parent, agent) = (begun.id, begun.parent, begun.plan.agent.clone());
        let left = |id: ExecutionId| {
            let view = self.runs.get(DAEMON, &id.to_string());
            view.is_ok_and(|view| relatives::is_left(&view.state))
        };
        let known = self.shared.tree.ids();
        self.shared.tree.remove(known.into_iter().filter(|id| !left(*id)));
        self.runs.begin_with(id, Record::Begun(Box::new(begun)), more).await?;
        // Its first step does it, too, and may be later than a word of its parent.
        if let Ok(view) = self.runs.get(DAEMON, &id.to_string()) {
            let ExecutionState { begun, child, account, .. } = &view.state;
            self.shared.tree.insert((id, begun.parent), *child, account);
        }
        let Some(parent) = parent else { return Ok(()) };
        let noted = relatives::note_child(&self.runs, parent, id, agent).await;
        if noted.is_err() {
            self.runs.cancel(DAEMON, &id.to_string()).await?;
        }
        noted
    }

    /// Execution in whose session the caller is, or in one below that.
    fn above(&self, cx: &CallCx) -> Answer<Option<ExecutionState>> {
        let agents = self.shared.children.agents_above(cx.session);
        let Some(above) = self.shared.tree.of_sessions(&agents) else { return Ok(None) };
        if self.shared.tree.depth(above) >= MAX_DEPTH {
            let message = format!("{above} has {} executions above it already", MAX_DEPTH - 1);
            return Err(ToolError::new(Layer::Actor, codes::EXECUTION_TOO_DEEP, message)
                .next("have the agent begun further up; nothing was begun")
                .detail("max_depth", MAX_DEPTH));
        }
        Ok(Some(self.runs.get(DAEMON, &above.to_string())?.state))
    }

    /// Bounds of a budget: those that are asked for and may be, and else those that there are for everybody.
    fn budget(
        &self,
        caller: RegistryCaller,
        manifest: &BudgetAmounts,
        asked: &AgentBudget,
    ) -> Answer<BudgetAmounts> {
        let most = self.budget_bounds(caller.user);
        let budget = manifest.clone().within(&BudgetAmounts::of(asked));
        if !caller.operator {
            budget.check(&most)?;
        }
        Ok(budget.or(&most))
    }

    /// Bounds that a manifest or a caller may not raise: the operator's, and of the user's tier.
    fn budget_bounds(&self, user: User) -> BudgetAmounts {
        let of_tier = |kind: BudgetKind| Some((kind, self.sessions.allowance(user, kind.held())?));
        let of_tier = BudgetKind::ALL.into_iter().filter_map(of_tier).collect();
        BudgetAmounts::of(&self.options.budget.budget()).within(&of_tier)
    }

    async fn status(self: Arc<Self>, cx: CallCx, input: TaskStatus) -> Answer<TaskState> {
        Ok(self.state(&self.runs.get(self.run_caller(&cx), &input.execution_id)?))
    }

    async fn list_tasks(self: Arc<Self>, cx: CallCx, input: TaskList) -> Answer<TasksListed> {
        let group = input.agent_id.map(|agent| self.agent_id(&cx, &agent)).transpose()?;
        let (rows, total) = self.runs.list(self.run_caller(&cx), group.as_deref(), input.limit);
        let asks = self.shared.children.awaiting_approval();
        let executions = rows.iter().map(|(id, view)| row(*id, view, &asks)).collect();
        Ok(TasksListed { executions, total })
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
        let view = self.runs.get(self.run_caller(&cx), &execution_id)?;
        if view.given_up.is_some() && view.status().is_over() {
            // Nobody takes its last steps.
            if let Some(session) = view.state.child {
                self.shared.children.end(session).await?;
            }
            let used = view.state.account.total();
            relatives::inform(&self.runs, &view.state, used).await?;
        }
        let removed = self.runs.remove(self.run_caller(&cx), &execution_id).await?;
        let goes_on = || "it is not over: cancel it first by aegis.task.cancel".to_owned();
        Ok(TaskRemoved { execution_id, removed, error: (!removed).then(goes_on) })
    }

    async fn wait(self: Arc<Self>, cx: CallCx, input: TaskWait) -> Answer<TaskState> {
        let secs = input.timeout_seconds.unwrap_or(WAIT_SECS);
        let (view, timed_out) =
            self.wait_asking(&cx, &input.execution_id, Duration::from_secs(secs)).await?;
        let now = self.state(&view);
        if !timed_out {
            return Ok(now);
        }
        let next = match now.waiting_for {
            None => {
                "it goes on: call aegis.task.wait again, or aegis.task.cancel to end it".to_owned()
            }
            Some(_) => now.next_step.unwrap_or_default(),
        };
        Ok(TaskState { status: "timed_out", next_step: Some(next), ..now })
    }

    async fn agent_wait(self: Arc<Self>, cx: CallCx, input: AgentWait) -> Answer<TaskState> {
        self.wait(cx, input.0).await
    }

    async fn agent_logs(self: Arc<Self>, cx: CallCx, input: AgentLogs) -> Answer<AgentEvents> {
        let AgentLogs { agent_id, limit, offset } = input;
        let agent_id = self.agent_id(&cx, &agent_id)?;
        let (rows, _) = self.runs.list(self.run_caller(&cx), Some(&agent_id), usize::MAX);
        let mut events: Vec<_> =
            rows.iter().flat_map(|(id, view)| agent_events(*id, view)).collect();
        let scheduled = self.schedules.events(self.run_caller(&cx), &agent_id).into_iter();
        events.extend(scheduled.map(|SequencedEvent { recorded_at, event, .. }| AgentEvent {
            event_type: event.event_type,
            payload: event.payload,
            recorded_at,
        }));
        events.sort_by_key(|event| event.recorded_at);
        let total = events.len();
        let events = events.into_iter().skip(offset).take(limit).collect();
        Ok(AgentEvents { tool: cx.tool, agent_id, events, total, limit, offset })
    }

    pub(crate) fn run_caller(&self, cx: &CallCx) -> RunCaller {
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

    /// State of an execution as clients are shown it.
    fn state(&self, view: &View) -> TaskState {
        shown(view, &self.shared.children.awaiting_approval())
    }
}

fn shown(view: &View, asks: &BTreeSet<SessionId>) -> TaskState {
    let (state, plan) = (&view.state, &view.state.begun.plan);
    let last_output = match state.end.as_deref() {
        Some(ExecutionEnd::Completed { output }) => Some(output.clone()),
        _ => state.said.as_deref().map(str::to_owned),
    };
    let given_up = view.given_up.as_ref().filter(|_| state.end.is_none());
    let given_up = given_up.map(|_| stands_still(view));
    let error = given_up.as_ref().or(state.last_error());
    let status = view.status();
    let waiting_for = waiting_for(view, asks);
    let next = match waiting_for {
        _ if status.is_over() => None,
        Some("budget") => Some("agent_continue adds to its budget, aegis.task.cancel ends it"),
        Some("message") => Some("agent_continue says something to it, aegis.task.cancel ends it"),
        Some(_) => Some("its owner decides: `hivekeep approvals`"),
        None => Some("aegis.task.wait waits for its result"),
    };
    TaskState {
        execution_id: state.begun.id,
        agent_id: plan.agent_id,
        status: status.word(),
        waiting_for,
        iteration_count: state.iterations.len(),
        last_output,
        last_error: error.map(ToolError::to_text),
        error_code: error.map(|error| error.code.clone().into_owned()),
        tokens: state.tokens,
        model_requests: ModelRequests::of(state),
        budget: budget(state),
        forked_from: state.forks.origin.as_ref().map(|origin| origin.source),
        started_at: state.begun.at,
        ended_at: state.ended_at,
        next_step: next.map(str::to_owned),
    }
}

/// Whatever an execution waits for.
pub(crate) fn waiting_for(view: &View, asks: &BTreeSet<SessionId>) -> Option<&'static str> {
    let state = &view.state;
    match state.child {
        _ if view.status().is_over() => None,
        _ if state.account.waiting().is_some() => Some("budget"),
        Some(session) if asks.contains(&session) => Some("approval"),
        _ if state.awaits_message() => Some("message"),
        _ => None,
    }
}

/// Seconds of work up to a time.
fn worked(state: &ExecutionState, upto: DateTime<Utc>) -> u64 {
    let worked = upto - state.begun.at - state.account.waited_since(state.begun.at);
    u64::try_from(worked.num_seconds()).unwrap_or(0)
}

/// Time of work that an execution leaves to one that it begins.
fn time_left(above: &ExecutionState) -> BudgetAmounts {
    let bound = above.account.budget.get(BudgetKind::WallSecs);
    let left = |bound: u64| bound.saturating_sub(worked(above, Utc::now()));
    bound.map(|bound| (BudgetKind::WallSecs, left(bound))).into_iter().collect()
}

/// Bounds of an execution, and what it used of them up to its last record.
fn budget(state: &ExecutionState) -> Vec<BudgetRow> {
    let used = state.account.total();
    let row = |(kind, limit): (BudgetKind, u64)| BudgetRow {
        kind: kind.word(),
        used: if kind == BudgetKind::WallSecs {
            worked(state, state.last_at)
        } else {
            used.amount(kind)
        },
        limit,
    };
    state.account.budget.kinds().map(row).collect()
}

fn row(id: ExecutionId, view: &View, asks: &BTreeSet<SessionId>) -> TaskRow {
    let (begun, plan) = (&view.state.begun, &view.state.begun.plan);
    TaskRow {
        id,
        agent_id: plan.agent_id,
        agent: plan.agent.clone(),
        version: plan.version.clone(),
        status: view.status().word(),
        waiting_for: waiting_for(view, asks),
        summary: summary(view),
        owner: begun.user,
        started_at: begun.at,
        ended_at: view.state.ended_at,
    }
}

fn summary(view: &View) -> Option<String> {
    let plan = &view.state.begun.plan;
    let intent = plan.chat.as_deref().or(plan.intent.as_deref());
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
