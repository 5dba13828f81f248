//! Plan of an execution: everything that its manifest and its caller ask for, with the bounds that it runs in. A
//! field of the manifest is obeyed here, or refused by its name.

pub(crate) mod after;
mod compaction;
mod machine;
mod sources;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{AgentId, Layer, ToolError};
use hivekeep_manifest::{
    agent::{
        AgentExecution, AgentManifest, AgentRuntime, AgentSecurity, AgentSpec, CheckpointMode,
        ContextItem, ExecutionMode,
    },
    common::{JsonObject, TimeSpan},
};
use hivekeep_ports::ChildTool;
use hivekeep_runtime::{
    json_schema::{ValidationError, validator},
    template::{self, TemplateHelpers, TemplateValue},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use after::AfterPlan;

use super::{
    account::BudgetAmounts,
    acp,
    validation::{self, ValidationPlan},
};
use crate::{codes, options::Options, programs::ProgramPlan};
pub(crate) use compaction::CompactionPlan;
pub(crate) use machine::{AgentMachinePlan, MachineHost};
pub(crate) use sources::{ContextAddress, ContextSource, read_call, reads_files};

/// Iterations of an agent of the mode `iterative` that names no number.
const ITERATIONS: u64 = 5;
/// Longest iteration where the manifest names none.
const ITERATION: Duration = Duration::from_secs(600);
/// Longest answer of a model where the manifest names none.
const MODEL_SECS: u64 = 300;
/// Longest execution where the manifest names none.
const WHOLE: Duration = Duration::from_secs(1_800);
/// Problems of an input that are told.
const MAX_PROBLEMS: usize = 10;

/// Everything that an execution does is decided by this and by what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecutionPlan {
    pub(crate) agent_id: AgentId,
    pub(crate) agent: String,
    pub(crate) version: String,
    pub(crate) description: Option<String>,
    pub(crate) instruction: String,
    /// Template of the prompt; without one the parts stand one below the other.
    pub(crate) template: Option<String>,
    /// Texts that the agent is given to read, those of `sources` once they are read.
    pub(crate) context: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<ContextSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compaction: Option<CompactionPlan>,
    pub(crate) intent: Option<String>,
    /// Name of a chat: an execution that waits for its next message where another one ends.
    #[serde(default)]
    pub(crate) chat: Option<String>,
    /// Constant input of the manifest, and the caller's.
    pub(crate) input: JsonObject,
    pub(crate) model: String,
    pub(crate) temperature: Option<f64>,
    /// Declared names of the tools that the agent is offered.
    pub(crate) tools: BTreeSet<String>,
    pub(crate) security_context: Option<String>,
    #[serde(default, skip_serializing_if = "ValidationPlan::is_empty")]
    pub(crate) validation: ValidationPlan,
    /// Judges by the names that the validators have for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) judges: BTreeMap<String, JudgePlan>,
    pub(crate) limits: ExecutionLimits,
    /// Program that runs in place of turns.
    #[serde(default)]
    pub(crate) program: Option<ProgramPlan>,
    #[serde(default)]
    pub(crate) budget: BudgetAmounts,
    /// Turns behind which the machine is kept as it is.
    #[serde(default)]
    pub(crate) checkpoint: CheckpointMode,
    /// Machine that the manifest asks for; without one it is made when a call needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<AgentMachinePlan>,
    /// Jobs behind its output and its end.
    #[serde(default, skip_serializing_if = "AfterPlan::is_empty")]
    pub(crate) after: AfterPlan,
    /// Time of the schedule that begins it. The session that asks is its alone then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheduled_for: Option<DateTime<Utc>>,
}

/// A judge: an agent as it was when the execution was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JudgePlan {
    /// Plan without a question.
    pub(crate) plan: ExecutionPlan,
    pub(crate) input_schema: Option<JsonObject>,
}

/// Bounds of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecutionLimits {
    pub(crate) iterations: usize,
    pub(crate) iteration_ms: u64,
    pub(crate) model_secs: u64,
    pub(crate) whole_ms: u64,
    /// Turns of an iteration.
    pub(crate) turns: usize,
    /// Tokens of all turns, read and written.
    pub(crate) tokens: u64,
    /// Seconds after which the machine of a chat that waits stands still; 0: never.
    #[serde(default)]
    pub(crate) idle_secs: u64,
}

/// Request of a caller.
#[derive(Debug, Default)]
pub(crate) struct ExecutionRequest {
    pub(crate) intent: Option<String>,
    pub(crate) input: JsonObject,
    pub(crate) chat: Option<String>,
    pub(crate) host: MachineHost,
    pub(crate) scheduled_for: Option<DateTime<Utc>>,
}

impl ExecutionPlan {
    /// Plans an execution of a manifest. Judges are added by whoever finds them.
    ///
    /// # Errors
    /// `agent_field_unsupported`, `input_invalid`, `agent_prompt_invalid`, `program_unknown`.
    pub(crate) fn of(
        agent_id: AgentId,
        manifest: AgentManifest,
        request: ExecutionRequest,
        options: &Options,
    ) -> Result<Self, ToolError> {
        let chat = request.chat.clone();
        let plan = Self::unprompted(agent_id, manifest, request, options)?;
        let plan = match chat {
            Some(name) => plan.into_chat(name)?,
            None => plan,
        };
        // A template that cannot be filled in is told before anything is begun.
        plan.prompt(1, None)?;
        Ok(plan)
    }

    /// Plans an execution whose prompt is not looked at, since its input is to come.
    ///
    /// # Errors
    /// `agent_field_unsupported`, `input_invalid`.
    pub(crate) fn unprompted(
        agent_id: AgentId,
        manifest: AgentManifest,
        request: ExecutionRequest,
        options: &Options,
    ) -> Result<Self, ToolError> {
        let program = ProgramPlan::of(&manifest.spec.runtime)?;
        let mut refused = refused(&manifest.spec, program.as_ref());
        let memory_mb = program.as_ref().and_then(|program| program.memory_mb);
        let machine = AgentMachinePlan::of(&manifest.spec, &request.host, memory_mb, &mut refused);
        let mails = (&request.host, options.smtp.is_some());
        let after = AfterPlan::of(&manifest.spec, mails, machine.as_ref(), &mut refused);
        if !refused.0.is_empty() {
            return Err(unsupported(&refused));
        }
        let AgentManifest { metadata, spec, .. } = manifest;
        let no_tools = spec.tools.iter().flatten().next().is_none();
        let program = program.map(|it| if no_tools { it.without_tools() } else { it });
        let speaks = program.as_ref().is_some_and(|program| program.acp);
        let for_requests = acp::tools::ALL.into_iter().filter(|_| speaks).map(str::to_owned);
        let checkpoint = spec.execution.as_ref().and_then(|it| it.checkpoint).unwrap_or_default();
        let constant = spec.task.input_data.unwrap_or_default();
        let input = checked_input(constant, spec.input_schema.as_ref(), request.input)?;
        let (context, sources) = sources::planned(spec.context);
        let compaction = spec.execution.as_ref().and_then(|it| it.compaction);
        Ok(Self {
            agent_id,
            agent: metadata.name,
            version: metadata.version,
            description: metadata.description,
            budget: BudgetAmounts::of(
                &spec.execution.as_ref().and_then(|it| it.budget).unwrap_or_default(),
            ),
            limits: limits(spec.execution.as_ref(), spec.security.as_ref(), options),
            validation: ValidationPlan::of(spec.execution),
            judges: BTreeMap::new(),
            instruction: spec.task.instruction,
            template: spec.task.prompt_template,
            context,
            sources,
            compaction: CompactionPlan::of(compaction, options),
            intent: request.intent.filter(|intent| !intent.trim().is_empty()),
            chat: None,
            input,
            model: spec.runtime.model.unwrap_or_else(|| "default".to_owned()),
            temperature: spec.runtime.temperature,
            tools: spec.tools.into_iter().flatten().chain(for_requests).collect(),
            security_context: spec.security_context,
            program,
            checkpoint,
            machine,
            after,
            scheduled_for: request.scheduled_for,
        })
    }

    /// The same as a chat. Each message has an iteration, and its time; the chat itself has as long as people take.
    ///
    /// # Errors
    /// `agent_field_unsupported` for validators of an output, and for programs.
    fn into_chat(self, name: String) -> Result<Self, ToolError> {
        let mut refused = RefusedFields::default();
        let instead = "no output of a chat is judged: remove it, or run the agent without `chat`";
        refused.add(!self.validation.output.is_empty(), "execution.validation", instead);
        let instead =
            "a chat has no end with an output: remove it, or run the agent without `chat`";
        for job in &self.after.0 {
            refused.add(true, &job.field, instead);
        }
        let instead = "a program reads no messages: run the agent without `chat`";
        refused.add(self.program.is_some(), "runtime", instead);
        if !refused.0.is_empty() {
            return Err(unsupported(&refused));
        }
        let limits = ExecutionLimits { iterations: usize::MAX, whole_ms: u64::MAX, ..self.limits };
        Ok(Self { chat: Some(name), limits, ..self })
    }

    /// Whether the agent is offered a tool of its session, which has those of its material and its handlers too.
    pub(crate) fn offers(&self, tool: &ChildTool) -> bool {
        self.tools.contains(tool.declared)
    }

    /// Prompt of an iteration, the first of which is 1.
    ///
    /// # Errors
    /// `agent_prompt_invalid`.
    pub(crate) fn prompt(
        &self,
        iteration: usize,
        failed: Option<&str>,
    ) -> Result<String, ToolError> {
        let intent = self.intent.as_deref().unwrap_or_default();
        let given = self.given();
        let context = self.context.join("\n\n");
        let failed_before = failed.map(|why| format!("Previous attempt failed: {why}"));
        let rendered = match &self.template {
            None => {
                let task = Some(intent).filter(|it| !it.is_empty()).map(|it| format!("Task: {it}"));
                let user = Some(&given).filter(|it| !it.is_empty()).map(|it| format!("User: {it}"));
                let parts = [Some(self.instruction.clone()), Some(context), task, user];
                let parts = parts.into_iter().flatten().filter(|part| !part.trim().is_empty());
                Ok(parts.collect::<Vec<_>>().join("\n\n"))
            }
            Some(template) => {
                let text = TemplateValue::text;
                // Without an input the intent is what there is to work on.
                let input = if given.is_empty() { intent.to_owned() } else { given };
                let value = match self.input.is_empty() {
                    true => Value::String(input.clone()),
                    false => Value::Object(self.input.clone()),
                };
                let agent = json!({
                    "name": self.agent, "version": self.version, "description": self.description,
                });
                let values = [
                    text("instruction", &self.instruction),
                    text("intent", intent),
                    TemplateValue::shown("input", value, input),
                    text("context", &context),
                    text("iteration_number", &iteration.to_string()),
                    text("previous_error", failed.unwrap_or_default()),
                    TemplateValue::shown("agent", agent, self.agent.as_str()),
                ];
                template::render(template, TemplateHelpers::None, &values)
            }
        };
        let names_it = |template: &String| template::names(template, "previous_error");
        let appended = failed_before.filter(|_| !self.template.as_ref().is_some_and(names_it));
        let prompt = rendered.map(|text| match appended {
            Some(failed) => format!("{text}\n\n{failed}"),
            None => text,
        });
        let prompt = prompt.and_then(|text| match text.trim().is_empty() {
            true => Err("it renders to nothing".to_owned()),
            false => Ok(text),
        });
        prompt.map_err(|why| {
            let message = format!("`spec.task.prompt_template` is not usable: {why}");
            ToolError::new(Layer::Actor, codes::AGENT_PROMPT_INVALID, message)
                .next("mend the template, and deploy the agent with a higher version")
        })
    }

    /// Input as a text: what a person wrote stands alone, anything else is JSON.
    fn given(&self) -> String {
        match self.input.get("prompt") {
            Some(Value::String(prompt)) if self.input.len() == 1 => prompt.clone(),
            _ if self.input.is_empty() => String::new(),
            _ => Value::Object(self.input.clone()).to_string(),
        }
    }
}

fn limits(
    execution: Option<&AgentExecution>,
    security: Option<&AgentSecurity>,
    options: &Options,
) -> ExecutionLimits {
    let span = |span: Option<&TimeSpan>| span.and_then(TimeSpan::duration);
    let iterations = execution.map_or(1, |it| match it.mode {
        Some(ExecutionMode::Iterative) => {
            it.max_iterations.or(it.max_retries).unwrap_or(ITERATIONS)
        }
        Some(ExecutionMode::OneShot) | None => 1,
    });
    let iteration = span(execution.and_then(|it| it.iteration_timeout.as_ref()));
    let whole =
        span(security.and_then(|it| it.resources.as_ref()).and_then(|it| it.timeout.as_ref()));
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    ExecutionLimits {
        iterations: usize::try_from(iterations).unwrap_or(1).max(1),
        iteration_ms: millis(iteration.unwrap_or(ITERATION)),
        model_secs: execution.and_then(|it| it.llm_timeout_seconds).unwrap_or(MODEL_SECS),
        whole_ms: millis(whole.unwrap_or(WHOLE)),
        turns: options.max_turns,
        tokens: options.max_tokens,
        idle_secs: options.idle_secs,
    }
}

/// Input of an execution: what the manifest always gives, and what the caller gives beside it.
///
/// # Errors
/// `input_invalid`.
pub(super) fn checked_input(
    constant: JsonObject,
    schema: Option<&JsonObject>,
    given: JsonObject,
) -> Result<JsonObject, ToolError> {
    let invalid = |message: String| {
        ToolError::new(Layer::Schema, codes::INPUT_INVALID, message)
            .next("aegis.agent.export shows `spec.input_schema` and `spec.task.input_data`")
    };
    let path = |error: &ValidationError<'_>| {
        error.instance_path().as_str().trim_start_matches('/').to_owned()
    };
    let mut input = constant;
    if let Some(key) = given.keys().find(|key| input.contains_key(*key)) {
        return Err(invalid(format!("`{key:.80}` is given by the agent's manifest: leave it out")));
    }
    input.extend(given);
    let Some(schema) = schema else { return Ok(input) };
    let schema = validator(&Value::Object(schema.clone())).map_err(ToolError::internal)?;
    let value = Value::Object(input);
    let problems = schema.iter_errors(&value).take(MAX_PROBLEMS);
    let problems =
        problems.map(|error| format!("/{}: {}", path(&error), error.masked_with("the value")));
    let problems: Vec<String> = problems.collect();
    match (problems.first(), value) {
        (None, Value::Object(input)) => Ok(input),
        (first, _) => {
            let first = first.cloned().unwrap_or_default();
            Err(invalid(format!("the input does not fit the agent's schema: {first}"))
                .detail("problems", problems))
        }
    }
}

/// Fields of a manifest that are set and that nothing obeys, with what to do instead.
#[derive(Default)]
struct RefusedFields(Vec<(String, Cow<'static, str>)>);

impl RefusedFields {
    fn add(&mut self, is_set: bool, field: &str, instead: impl Into<Cow<'static, str>>) {
        if is_set {
            self.0.push((format!("spec.{field}"), instead.into()));
        }
    }
}

/// Refused fields of a manifest. It is destructured whole, so that a field that is added is decided on.
fn refused(spec: &AgentSpec, program: Option<&ProgramPlan>) -> RefusedFields {
    let AgentSpec {
        // Obeyed, these by the machine.
        runtime,
        security: _,
        env: _,
        volumes: _,
        // Obeyed.
        task: _,
        tools,
        input_schema: _,
        security_context: _,
        context,
        contexts,
        execution,
        // Obeyed by the agent's schedule.
        schedule: _,
        advanced,
        // Obeyed by the jobs behind an output, with `execution.delivery`.
        output_handler: _,
        builtin_dispatchers,
    } = spec;
    let mut refused = RefusedFields::default();
    refuse_of_runtime(runtime, &mut refused);
    let untold = program.is_some_and(|program| !program.takes_tools());
    let offered = untold && tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let instead =
        "this program takes no MCP server: remove it; a `command` is told of one by `{mcp}`";
    refused.add(offered, "tools", instead);
    let judges_calls = execution.as_ref().is_some_and(|it| it.tool_validation.is_some());
    let instead = "calls of a program's own tools are not judged: name ours in `tools`";
    let has_none = tools.as_ref().is_none_or(Vec::is_empty);
    let unseen = program.is_some() && has_none && judges_calls;
    refused.add(unseen, "execution.tool_validation", instead);
    let is_read = |item: &&ContextItem| !matches!(item, ContextItem::Text { .. });
    let instead = "a program reads for itself: write the texts themselves";
    refused.add(
        program.is_some() && context.iter().flatten().any(|it| is_read(&it)),
        "context",
        instead,
    );
    let many = context.iter().flatten().filter(is_read).count() > sources::MOST_SOURCES;
    refused.add(many, "context", "name fewer to read: 32 pages, files and folders are read");
    let compacts = execution.as_ref().is_some_and(|it| it.compaction.is_some());
    let instead = "a program keeps its own conversation: remove it";
    refused.add(program.is_some() && compacts, "execution.compaction", instead);
    let instead =
        "a program of the Agent Client Protocol cannot be forked: remove it, or use `exit`";
    let kept = execution.as_ref().and_then(|it| it.checkpoint).unwrap_or_default();
    let keeps = kept != CheckpointMode::None;
    refused.add(program.is_some_and(|it| it.acp) && keeps, "execution.checkpoint", instead);
    let instead = "have the operator add a source with the service's tools";
    refused.add(contexts.is_some(), "contexts", instead);
    if let Some(execution) = execution {
        let tools = program.is_none().then(|| tools.iter().flatten().cloned().collect());
        refuse_of_execution(execution, tools.as_ref(), &mut refused);
    }
    refused.add(advanced.is_some(), "advanced", "remove it");
    let instead = "the operator's list of programs holds (`command`): remove it";
    refused.add(builtin_dispatchers.is_some(), "builtin_dispatchers", instead);
    refused
}

fn refuse_of_runtime(runtime: &AgentRuntime, refused: &mut RefusedFields) {
    let AgentRuntime {
        // Obeyed by the machine, or it says what an agent is written for.
        language: _,
        version: _,
        image: _,
        image_pull_policy: _,
        isolation: _,
        model: _,
        temperature,
        program,
        command,
    } = runtime;
    let is_program = program.is_some() || command.is_some();
    let instead = "the program decides on it: remove it";
    refused.add(is_program && temperature.is_some(), "runtime.temperature", instead);
}

fn refuse_of_execution(
    execution: &AgentExecution,
    tools: Option<&BTreeSet<String>>,
    refused: &mut RefusedFields,
) {
    let AgentExecution {
        mode: _,
        max_retries: _,
        max_iterations: _,
        iteration_timeout: _,
        llm_timeout_seconds: _,
        memory,
        // Refused in part, as below.
        validation: _,
        tool_validation: _,
        delivery: _,
        budget: _,
        compaction: _,
        // By the machine.
        checkpoint: _,
    } = execution;
    let instead = "name `vault` in `tools` to keep notes";
    refused.add(*memory == Some(true), "execution.memory", instead);
    let judged = validation::refused(execution, tools).into_iter();
    refused.0.extend(judged.map(|(field, instead)| (field, instead.into())));
}

fn unsupported(RefusedFields(refused): &RefusedFields) -> ToolError {
    let names: Vec<_> = refused.iter().map(|(field, _)| format!("`{field}`")).collect();
    let fields =
        refused.iter().map(|(field, instead)| json!({ "field": field, "instead": instead }));
    let first = refused.first().map(|(field, instead)| format!("; `{field}`: {instead}"));
    let message = format!(
        "this daemon does not obey {}, so the agent is not run{}",
        names.join(", "),
        first.unwrap_or_default()
    );
    ToolError::new(Layer::Actor, codes::AGENT_FIELD_UNSUPPORTED, message)
        .next("`details.fields` says for each what to do instead; deploy it with a higher version")
        .detail("fields", fields.collect::<Value>())
}

#[cfg(test)]
mod tests;
