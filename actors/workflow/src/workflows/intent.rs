//! Tools of the pipeline from a task in plain words to the result of a program: a shipped workflow.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{CallCx, Layer, RunId, ToolError, tools};
use hivekeep_manifest::{
    common::{JsonObject, TimeSpan},
    workflow::{
        ContainerVolume, WorkflowManifest, WorkflowState, WorkflowStorage, WorkflowWorkspace,
    },
};
use hivekeep_manifest_registry::check_tenant;
use hivekeep_runtime::runs::RunStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Answer,
    run::{MachineOrder, run_id},
};
use crate::{MachineStatus, codes, service::WorkflowService};

/// Workflow of the pipeline.
pub(super) const WORKFLOW: &str = "workflow_00000000000000000000000000000001";
/// Key of the inputs for a program that is given.
const CODE: &str = "code";
/// Longest program: an argument of its interpreter.
const MAX_CODE_BYTES: usize = 96 * 1024;
/// Key of the pipeline's output.
const RESULT: &str = "result";

/// Have a program written for a task, checked, and run in a machine without network; its result comes in plain words.
/// A program in `inputs.code` is run as it is, without a model. aegis.execute.wait waits for the end.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecuteIntent {
    /// Task in plain words.
    #[schemars(length(min = 1, max = 65_536))]
    intent: String,
    /// Inputs, which the program has as JSON in the variable `INTENT_INPUTS`; `code` is a program to run instead of
    /// having one written, at most 96 KiB.
    inputs: Option<JsonObject>,
    /// Volume that the program sees as /workspace. Default: none that lasts.
    #[serde(default = "ephemeral")]
    volume_id: Option<String>,
    /// Language of the program.
    #[serde(default = "python")]
    language: IntentLanguage,
    /// Longest run of the program in seconds. Default: 600.
    #[schemars(range(min = 1, max = 86_400))]
    timeout_seconds: Option<u64>,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

fn ephemeral() -> Option<String> {
    Some("ephemeral".to_owned())
}

fn python() -> IntentLanguage {
    IntentLanguage::Python
}

/// Language of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum IntentLanguage {
    /// Python 3.
    Python,
    /// JavaScript on Node.js.
    Javascript,
    /// GNU Bash.
    Bash,
}

impl IntentLanguage {
    /// Its name, and interpreter with the option that a program follows.
    fn interpreter(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Python => ("python", "python3", "-c"),
            Self::Javascript => ("javascript", "node", "-e"),
            Self::Bash => ("bash", "bash", "-c"),
        }
    }
}

/// Pipeline that was begun.
#[derive(Debug, Serialize, JsonSchema)]
struct PipelineStarted {
    /// Id of the pipeline: a run of a workflow.
    pipeline_execution_id: RunId,
    /// `started`.
    status: &'static str,
    /// Address of its events; null, as no door streams them. aegis.workflow.logs reads them.
    stream_url: String,
}

/// Read how far a pipeline of aegis.execute.intent is, and its result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecuteStatus {
    /// Id of the pipeline.
    pipeline_execution_id: String,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

/// State of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
struct PipelineState {
    /// Id of the pipeline.
    pipeline_execution_id: RunId,
    /// `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// Step that it is at, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    current_state: Option<String>,
    /// Result of one that has completed: in plain words, or the output of a program that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    final_result: Option<Value>,
    /// Milliseconds from its beginning to its end, once that has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// True if an agent that was there wrote the program, false if the program was given; once it has completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_existing_agent: Option<bool>,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at_state: Option<String>,
}

tools! { pub(crate) INTENT_FAMILY: "execute" for service WorkflowService, singleton workflows;
    execute_intent: ExecuteIntent => PipelineStarted = WorkflowService::execute_intent {
        name: "aegis.execute.intent", title: "Have a program written and run", open_world: true,
        rate: RateClass::Exec, told_by: Some("aegis.workflow.executions.list"),
    };
    execute_status: ExecuteStatus => PipelineState = WorkflowService::execute_status {
        name: "aegis.execute.status", title: "State of a pipeline", effect: Read,
        rate: RateClass::File,
    };
}

impl WorkflowService {
    async fn execute_intent(
        self: Arc<Self>,
        cx: CallCx,
        input: ExecuteIntent,
    ) -> Answer<PipelineStarted> {
        let ExecuteIntent { intent, inputs, volume_id, language, timeout_seconds, tenant_id } =
            input;
        check_tenant(tenant_id.as_deref())?;
        let mut input = inputs.unwrap_or_default();
        let code = match input.remove(CODE) {
            None => String::new(),
            Some(Value::String(code)) if (1..=MAX_CODE_BYTES).contains(&code.len()) => code,
            Some(_) => {
                let message =
                    format!("`inputs.code` has to be a text of 1 to {MAX_CODE_BYTES} bytes");
                return Err(ToolError::invalid(message));
            }
        };
        let (workflow_id, mut manifest) = self.workflow(&cx, WORKFLOW, None).await?;
        if code.is_empty() {
            self.check_agents(&cx, &manifest).await?;
        }
        let (language, program, option) = language.interpreter();
        let image = self.image_of(&cx, language).await?;
        let volume = volume_id.filter(|volume| volume != "ephemeral");
        bound(&mut manifest, timeout_seconds, volume);
        let values: BTreeMap<_, _> = [
            ("language", language),
            ("program", program),
            ("option", option),
            ("image", &image),
            (CODE, &code),
        ]
        .into();
        let values = values.into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
        let (intent, blackboard) = (Some(intent), values.collect());
        let order = MachineOrder { workflow_id, manifest, intent, input, blackboard };
        let pipeline_execution_id = self.start(&cx, order).await?.execution_id;
        let stream_url = format!("/api/runs/{pipeline_execution_id}/events");
        Ok(PipelineStarted { pipeline_execution_id, status: "started", stream_url })
    }

    /// Image of a language's newest runtime.
    async fn image_of(&self, cx: &CallCx, language: &str) -> Answer<String> {
        #[derive(Deserialize)]
        struct Listed {
            runtimes: Vec<Row>,
        }
        #[derive(Deserialize)]
        struct Row {
            image: String,
            deprecated: bool,
        }
        let asked = json!({ "language": language });
        let listed: Listed = self.ask(cx, "aegis.runtime.list", asked).await?;
        let newest = listed.runtimes.into_iter().rfind(|row| !row.deprecated);
        newest.map(|row| row.image).ok_or_else(|| {
            let told = format!("there is no runtime of `{language}`");
            ToolError::new(Layer::Resolve, codes::RUNTIME_MISSING, told)
                .next("have the operator add one to `runtimes.images`, or use another language")
        })
    }

    async fn execute_status(
        self: Arc<Self>,
        cx: CallCx,
        input: ExecuteStatus,
    ) -> Answer<PipelineState> {
        check_tenant(input.tenant_id.as_deref())?;
        let id = run_id(&input.pipeline_execution_id)?;
        let run = self.runs.machine(self.run_caller(&cx), id).await?;
        if run.workflow_id.to_string() != WORKFLOW {
            let code = codes::RUN_NOT_FOUND;
            let asked = &input.pipeline_execution_id;
            return Err(ToolError::not_found(Layer::Resolve, code, "pipeline", asked)
                .next("a run of another workflow is told by aegis.workflow.status"));
        }
        Ok(PipelineState::new(id, run))
    }
}

impl PipelineState {
    fn new(id: RunId, run: MachineStatus) -> Self {
        let duration = (run.last_transition_at - run.started_at).num_milliseconds();
        let duration = u64::try_from(duration).ok();
        let mut state = Self {
            pipeline_execution_id: id,
            status: run.status.word(),
            current_state: None,
            final_result: None,
            duration_ms: duration.filter(|_| run.status.is_over()),
            reused_existing_agent: None,
            reason: None,
            failed_at_state: None,
        };
        match run.status {
            RunStatus::Pending | RunStatus::Running => {
                state.status = RunStatus::Running.word();
                state.current_state = run.current_state;
            }
            RunStatus::Completed => {
                state.final_result =
                    run.final_output.and_then(|output| output.get(RESULT).cloned());
                let given = run.blackboard.get(CODE).and_then(Value::as_str);
                state.reused_existing_agent = Some(given.is_none_or(str::is_empty));
            }
            RunStatus::Failed => {
                state.reason = run.error.map(|error| error.to_text());
                state.failed_at_state = run.current_state;
            }
            RunStatus::Cancelled => {}
        }
        state
    }
}

/// Sets the time limit of the program, and the volume that it sees.
fn bound(manifest: &mut WorkflowManifest, secs: Option<u64>, volume: Option<String>) {
    let mounts = volume.is_some().then(|| {
        vec![ContainerVolume {
            name: "workspace".to_owned(),
            mount_path: "/workspace".to_owned(),
            read_only: None,
        }]
    });
    for state in manifest.spec.states.values_mut() {
        if let WorkflowState::ContainerRun { timeout, volumes, .. } = state {
            if let Some(secs) = secs {
                *timeout = Some(TimeSpan::Secs(secs));
            }
            volumes.clone_from(&mounts);
        }
    }
    if volume.is_some() {
        let workspace = WorkflowWorkspace {
            storage_class: None,
            ttl_hours: None,
            size_limit_mb: None,
            volume_id: volume,
            blackboard_key: None,
        };
        manifest.spec.storage =
            Some(WorkflowStorage { workspace: Some(workspace), shared_volumes: None });
    }
}
