//! Tools that begin runs of workflows, and end, answer and remove them.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, RunId, ToolError, WorkflowId, tools};
use hivekeep_manifest::{common::JsonObject, workflow::WorkflowManifest};
use hivekeep_manifest_registry::check_tenant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, FIRST_VERSION};
use crate::{MachineRequest, RunTrigger, codes, people::refuse_agents, service::WorkflowService};

/// Workflow that writes workflows.
pub(super) const GENERATOR: &str = "workflow_00000000000000000000000000000002";

/// Run a workflow. It goes on when you are gone or the daemon restarts: aegis.workflow.wait waits for its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowRun {
    /// Name or id. Your own workflow of a name comes before one that is everybody's.
    name: String,
    /// Task in plain words.
    #[schemars(length(max = 65_536))]
    intent: Option<String>,
    /// Input, which has to fit the workflow's `input_schema`.
    input: Option<JsonObject>,
    /// Values of the blackboard at the beginning, in place of those of the manifest's `context` and beside them.
    blackboard: Option<JsonObject>,
    /// Version, as `1.2.3`. Default: the latest.
    #[serde(default = "latest")]
    version: Option<String>,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

fn latest() -> Option<String> {
    Some("latest".to_owned())
}

/// Have a workflow written for a task and deployed. The run that does it ends with the workflow's id: wait for it
/// with aegis.workflow.wait. A workflow that does the task already is named instead.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowGenerate {
    /// Task of the workflow, in plain words.
    #[schemars(length(min = 1, max = 65_536))]
    input: String,
}

/// Run of a workflow that was begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WorkflowStarted {
    /// Id of the run.
    pub(super) execution_id: RunId,
    /// `started`.
    status: &'static str,
    /// Workflow that is run.
    workflow_id: WorkflowId,
    /// Version of the workflow that is run.
    version: String,
}

/// Cancel a run of a workflow. What its state does is cut short.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowCancel {
    /// Id of the run.
    execution_id: String,
}

/// Outcome of a cancellation of a run.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowCancelled {
    /// Name of the tool.
    tool: &'static str,
    /// False if it was over already.
    cancelled: bool,
    /// Id of the run.
    execution_id: RunId,
    /// Reason why it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Answer the question of a run that waits for a person. An answer that comes before its question is kept for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowSignal {
    /// Id of the run.
    execution_id: String,
    /// Answer, as `yes`, `no` or what the question asks for.
    #[schemars(length(max = 65_536))]
    response: String,
}

/// Outcome of an answer.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowSignalled {
    /// Name of the tool.
    tool: &'static str,
    /// False if the run waits for no answer, now or later.
    signalled: bool,
    /// Id of the run.
    execution_id: RunId,
    /// Reason why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Remove a run of a workflow that is over, with its events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowRemove {
    /// Id of the run.
    execution_id: String,
}

/// Outcome of a removal of a run.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowRemoved {
    /// Name of the tool.
    tool: &'static str,
    /// False if it is not over.
    removed: bool,
    /// Id of the run.
    execution_id: RunId,
    /// Reason why it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

tools! { pub(crate) RUN_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_run: WorkflowRun => WorkflowStarted = WorkflowService::run {
        name: "aegis.workflow.run", title: "Run a workflow", open_world: true,
        told_by: Some("aegis.workflow.executions.list"),
    };
    workflow_generate: WorkflowGenerate => WorkflowStarted = WorkflowService::generate {
        name: "aegis.workflow.generate", title: "Have a workflow written", open_world: true,
        told_by: Some("aegis.workflow.executions.list"),
    };
    workflow_cancel: WorkflowCancel => WorkflowCancelled = WorkflowService::cancel {
        name: "aegis.workflow.cancel", title: "Cancel a run of a workflow", effect: Idempotent,
    };
    workflow_signal: WorkflowSignal => WorkflowSignalled = WorkflowService::signal {
        name: "aegis.workflow.signal", title: "Answer a run that waits",
    };
    workflow_remove: WorkflowRemove => WorkflowRemoved = WorkflowService::remove {
        name: "aegis.workflow.remove", title: "Remove a run of a workflow", effect: Destroy,
        tier: Tier::Operator,
    };
}

/// Run of a workflow to begin.
pub(super) struct MachineOrder {
    pub(super) workflow_id: WorkflowId,
    pub(super) manifest: WorkflowManifest,
    pub(super) intent: Option<String>,
    pub(super) input: JsonObject,
    pub(super) blackboard: JsonObject,
}

impl WorkflowService {
    async fn run(self: Arc<Self>, cx: CallCx, input: WorkflowRun) -> Answer<WorkflowStarted> {
        let WorkflowRun { name, intent, input, blackboard, version, tenant_id } = input;
        check_tenant(tenant_id.as_deref())?;
        let version = version.as_deref().filter(|version| *version != "latest");
        let (workflow_id, manifest) = self.workflow(&cx, &name, version).await?;
        self.check_agents(&cx, &manifest).await?;
        let (input, blackboard) = (input.unwrap_or_default(), blackboard.unwrap_or_default());
        self.start(&cx, MachineOrder { workflow_id, manifest, intent, input, blackboard }).await
    }

    async fn generate(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowGenerate,
    ) -> Answer<WorkflowStarted> {
        let (workflow_id, manifest) = self.workflow(&cx, GENERATOR, None).await?;
        self.check_agents(&cx, &manifest).await?;
        let (intent, blackboard) = (Some(input.input), JsonObject::new());
        let input = JsonObject::new();
        self.start(&cx, MachineOrder { workflow_id, manifest, intent, input, blackboard }).await
    }

    /// Begins a run for a caller.
    ///
    /// # Errors
    /// Those of a run that begins: an input that does not fit, keys that nobody may set.
    pub(super) async fn start(&self, cx: &CallCx, order: MachineOrder) -> Answer<WorkflowStarted> {
        let MachineOrder { workflow_id, manifest, intent, input, blackboard } = order;
        let version = manifest.metadata.version.as_deref().unwrap_or(FIRST_VERSION).to_owned();
        let execution_id = RunId::new();
        let request = MachineRequest {
            id: execution_id,
            user: self.caller(cx)?.user,
            session: cx.session,
            workflow_id,
            manifest: Box::new(manifest),
            intent,
            input: Value::Object(input),
            blackboard,
            trigger: RunTrigger::Start,
        };
        self.runs.begin_machine(request).await?;
        Ok(WorkflowStarted { execution_id, status: "started", workflow_id, version })
    }

    async fn cancel(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowCancel,
    ) -> Answer<WorkflowCancelled> {
        let (caller, execution_id) = (self.run_caller(&cx), run_id(&input.execution_id)?);
        self.runs.machine(caller, execution_id).await?;
        let cancelled = self.runs.stop(caller, execution_id).await?;
        let error = match cancelled {
            true => None,
            false => {
                let status = self.runs.machine(caller, execution_id).await?.status.word();
                Some(format!("nothing is left to cancel: it is {status}"))
            }
        };
        Ok(WorkflowCancelled { tool: cx.tool, cancelled, execution_id, error })
    }

    async fn signal(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowSignal,
    ) -> Answer<WorkflowSignalled> {
        refuse_agents(&cx)?;
        let (caller, execution_id) = (self.run_caller(&cx), run_id(&input.execution_id)?);
        let signalled = self.runs.signal(caller, execution_id, input.response).await?;
        let error = match signalled {
            true => None,
            false => {
                let now = self.runs.machine(caller, execution_id).await?;
                let at = now.current_state.map(|state| format!(" in the state `{state:.80}`"));
                let (status, at) = (now.status.word(), at.unwrap_or_default());
                Some(format!("no state takes this answer: the run is {status}{at}"))
            }
        };
        Ok(WorkflowSignalled { tool: cx.tool, signalled, execution_id, error })
    }

    async fn remove(self: Arc<Self>, cx: CallCx, input: WorkflowRemove) -> Answer<WorkflowRemoved> {
        let (caller, execution_id) = (self.run_caller(&cx), run_id(&input.execution_id)?);
        self.runs.machine(caller, execution_id).await?;
        let removed = self.runs.remove(caller, execution_id).await?;
        let goes_on = || "it is not over: cancel it first by aegis.workflow.cancel".to_owned();
        let error = (!removed).then(goes_on);
        Ok(WorkflowRemoved { tool: cx.tool, removed, execution_id, error })
    }
}

/// Id of a run.
///
/// # Errors
/// `run_not_found`.
pub(super) fn run_id(asked: &str) -> Answer<RunId> {
    asked.parse().map_err(|_| {
        ToolError::not_found(Layer::Resolve, codes::RUN_NOT_FOUND, "run", asked)
            .next("aegis.workflow.executions.list shows yours")
    })
}
