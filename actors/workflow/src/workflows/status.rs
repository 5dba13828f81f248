//! Tools that tell how far runs of workflows are, and wait for their ends.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, RunId, WorkflowId, tools};
use hivekeep_manifest_registry::check_tenant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, run::run_id};
use crate::{MachineStatus, service::WorkflowService};

/// Longest wait.
const MAX_WAIT_SECS: u64 = 3_600;
/// Longest wait whose length nobody asked for: clients give up on calls of a minute.
const WAIT_SECS: u64 = 45;

/// Read how far a run of a workflow is. For its blackboard and the outputs of its states use
/// aegis.workflow.executions.get.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowStatus {
    /// Id of the run.
    execution_id: String,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

/// State of a run of a workflow.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowRunState {
    /// Id of the run.
    execution_id: RunId,
    /// Workflow.
    workflow_id: WorkflowId,
    /// Name of the workflow.
    name: String,
    /// Version of the workflow.
    version: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// State that it is in, or was in at its end.
    current_state: Option<String>,
    /// Time at which it was begun.
    started_at: DateTime<Utc>,
    /// Time of its last transition, or of its end.
    last_transition_at: DateTime<Utc>,
    /// Output by the workflow's `output_template`, once it has completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    final_output: Option<Value>,
    /// Error that it failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Stable code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
}

impl WorkflowRunState {
    fn new(execution_id: RunId, run: &MachineStatus) -> Self {
        Self {
            execution_id,
            workflow_id: run.workflow_id,
            name: run.name.clone(),
            version: run.version.clone(),
            status: run.status.word(),
            current_state: run.current_state.clone(),
            started_at: run.started_at,
            last_transition_at: run.last_transition_at,
            final_output: run.final_output.clone(),
            error: run.error.as_ref().map(|error| error.to_text()),
            error_code: run.error.as_ref().map(|error| error.code.clone().into_owned()),
        }
    }
}

/// Read a run of a workflow whole: its input, its blackboard and the outputs of its states.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowExecutionGet {
    /// Id of the run.
    execution_id: String,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

/// Run of a workflow.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowExecution {
    /// State.
    #[serde(flatten)]
    state: WorkflowRunState,
    /// Input that it was begun with.
    input: Value,
    /// Values that its states share, by key.
    blackboard: Value,
    /// Outputs of its states, by name; the last one of a state that was entered several times.
    state_outputs: Value,
}

/// List runs of workflows, the newest first: your own, or all as an operator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowExecutionList {
    /// Most runs to show, 1 to 200.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    limit: usize,
    /// Runs to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// Id or name of a workflow whose runs are listed. Default: of all workflows.
    workflow_id: Option<String>,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

fn twenty() -> usize {
    20
}

/// Runs of workflows.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowExecutions {
    /// The newest first.
    executions: Vec<WorkflowRunState>,
    /// How many there are in all.
    total: usize,
    /// Most runs that were asked for.
    limit: usize,
    /// Runs left out at the beginning.
    offset: usize,
}

/// Wait until a run of a workflow is over, and read its result. Without timeout_seconds at most 45 s; `timed_out` says
/// that it goes on: wait again.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(deny_unknown_fields)]
struct WorkflowWait {
    /// Id of the run.
    execution_id: String,
    /// Seconds between two looks. Nothing is polled here: the answer comes at once.
    #[serde(default = "five_secs")]
    #[schemars(range(min = 1))]
    #[serde(rename = "poll_interval_seconds")]
    _poll_interval_seconds: u64,
    /// Longest wait in seconds. Default: 45.
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    timeout_seconds: Option<u64>,
}

fn five_secs() -> u64 {
    5
}

/// Wait for a pipeline of aegis.execute.intent: the same as aegis.workflow.wait, by its pipeline_execution_id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
struct ExecuteWait(WorkflowWait);

/// Run of a workflow that was waited for.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowWaited {
    /// State.
    #[serde(flatten)]
    state: WorkflowRunState,
    /// Values that its states share, by key; left out while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    blackboard: Option<Value>,
    /// True if it goes on.
    timed_out: bool,
    /// Next step of the caller, where it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<&'static str>,
}

tools! { pub(crate) STATUS_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_status: WorkflowStatus => WorkflowRunState = WorkflowService::status {
        name: "aegis.workflow.status", title: "State of a run of a workflow", effect: Read,
        rate: RateClass::File,
    };
    workflow_executions_list: WorkflowExecutionList => WorkflowExecutions = WorkflowService::executions {
        name: "aegis.workflow.executions.list", title: "List runs of workflows", effect: Read,
    };
    workflow_executions_get: WorkflowExecutionGet => WorkflowExecution = WorkflowService::execution {
        name: "aegis.workflow.executions.get", title: "Read a run of a workflow", effect: Read,
        rate: RateClass::File,
    };
    workflow_wait: WorkflowWait => WorkflowWaited = WorkflowService::wait {
        name: "aegis.workflow.wait", title: "Wait for a run of a workflow", effect: Read,
        limit_secs: wait_secs,
    };
}

tools! { pub(crate) WAIT_FAMILY: "execute" for service WorkflowService, singleton workflows;
    execute_wait: ExecuteWait => WorkflowWaited = WorkflowService::wait_for_pipeline {
        name: "aegis.execute.wait", title: "Wait for a pipeline", effect: Read,
        limit_secs: wait_secs,
    };
}

fn wait_secs(input: &Value) -> Option<u64> {
    input.get("timeout_seconds")?.as_u64()
}

impl WorkflowService {
    async fn status(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowStatus,
    ) -> Answer<WorkflowRunState> {
        check_tenant(input.tenant_id.as_deref())?;
        let id = run_id(&input.execution_id)?;
        Ok(WorkflowRunState::new(id, &self.runs.machine(self.run_caller(&cx), id).await?))
    }

    async fn execution(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowExecutionGet,
    ) -> Answer<WorkflowExecution> {
        check_tenant(input.tenant_id.as_deref())?;
        let id = run_id(&input.execution_id)?;
        let run = self.runs.machine(self.run_caller(&cx), id).await?;
        let state = WorkflowRunState::new(id, &run);
        let MachineStatus { input, blackboard, state_outputs, .. } = run;
        Ok(WorkflowExecution { state, input, blackboard, state_outputs })
    }

    async fn executions(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowExecutionList,
    ) -> Answer<WorkflowExecutions> {
        let WorkflowExecutionList { limit, offset, workflow_id, tenant_id } = input;
        check_tenant(tenant_id.as_deref())?;
        let of = workflow_id.map(|asked| self.workflow_id(&cx, &asked)).transpose()?;
        let (runs, total) = self.runs.machines(self.run_caller(&cx), of.as_deref(), limit, offset);
        let executions = runs.iter().map(|(id, run)| WorkflowRunState::new(*id, run)).collect();
        Ok(WorkflowExecutions { executions, total, limit, offset })
    }

    async fn wait(self: Arc<Self>, cx: CallCx, input: WorkflowWait) -> Answer<WorkflowWaited> {
        let (caller, id) = (self.run_caller(&cx), run_id(&input.execution_id)?);
        let limit = Duration::from_secs(input.timeout_seconds.unwrap_or(WAIT_SECS));
        let mut run = self.runs.machine(caller, id).await?;
        if !run.status.is_over() {
            self.runs.wait(&cx, id, limit).await?;
            run = self.runs.machine(caller, id).await?;
        }
        let timed_out = !run.status.is_over();
        let next = "it goes on: call aegis.workflow.wait again, or aegis.workflow.cancel to end it";
        Ok(WorkflowWaited {
            state: WorkflowRunState::new(id, &run),
            blackboard: (!timed_out).then_some(run.blackboard),
            timed_out,
            next_step: timed_out.then_some(next),
        })
    }

    async fn wait_for_pipeline(
        self: Arc<Self>,
        cx: CallCx,
        input: ExecuteWait,
    ) -> Answer<WorkflowWaited> {
        self.wait(cx, input.0).await
    }

    /// Id of a workflow that the caller sees, or of one that may be deleted by now.
    fn workflow_id(&self, cx: &CallCx, id_or_name: &str) -> Answer<String> {
        match self.workflows.find(self.caller(cx)?, id_or_name, None) {
            Ok((id, ..)) => Ok(id.to_string()),
            Err(_) if id_or_name.parse::<WorkflowId>().is_ok() => Ok(id_or_name.to_owned()),
            Err(error) => Err(error),
        }
    }
}
