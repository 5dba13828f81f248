//! Jobs behind an output: each attempt is recorded, made by the same key however often, and tried again with bounds.

use std::{collections::BTreeMap, future::ready, sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{
    CallCx, Effect, ExecutionId, Layer, ToolError, WorkspaceId, codes::TOO_LARGE,
};
use hivekeep_manifest::{
    agent::Transform,
    common::{HttpMethod, JsonObject},
};
use hivekeep_ports::{
    ChildTool, Mail, Mails, OutboundRequest, OutboundRequests, Places, SESSION_PLACE,
    TaskAssignment, TaskOutcome, TaskResult, Tasks, own_workspace_name,
};
use hivekeep_runtime::{
    OnBehalfOf,
    log::LogError,
    template::{self, TemplateHelpers, TemplateValue},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    ExecutionSaga,
    after::{AfterKey, AfterRecord, AfterStage},
    plan::{
        AgentMachinePlan, JudgePlan,
        after::{AfterAction, AfterJob, AfterWhen, MailPlan, RequestPlan},
    },
    relatives::{self, DAEMON},
    repeated,
    state::{Conclusion, ExecutionBegun, ExecutionEnd, ExecutionState, Record},
};
use crate::{codes, mail, programs::quoted};

/// Bytes of a result that its event shows.
const RESULT_BYTES: usize = 2 * 1024;
/// Longest script that makes of an output what is delivered, where the manifest names no time.
const TRANSFORM_SECS: u64 = 300;
/// Time for the start of the daemon, and the pause between two looks.
const STARTING: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time for the start of its machine.
const PLACE: Duration = Duration::from_secs(120);
/// Largest script of a task, with the output that it is given.
const SCRIPT_BYTES: usize = 250 * 1024;

/// Output that is handed on, and its surroundings.
struct Handed {
    output: String,
    status: &'static str,
    error: String,
    key: String,
}

impl ExecutionSaga {
    /// Tries a job until it succeeds, or for the last time.
    pub(super) async fn hand(&self, key: AfterKey) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(job) = state.begun.plan.after.0.get(key.2) else { return Ok(()) };
        loop {
            let before = self.handle.state().after.progress(key);
            let record = async |attempt, stage| {
                let delivers = matches!(job.when, AfterWhen::End(_));
                let name = job.name.clone();
                let about = Box::new(AfterRecord { key, name, delivers, attempt, stage });
                self.handle.record(Record::After { about, at: Utc::now() }).await
            };
            let (mut attempt, mut execution) = (before.attempts, before.execution);
            if !before.is_open {
                let is_agent = matches!(job.action, AfterAction::Agent { .. });
                (attempt, execution) = (attempt + 1, is_agent.then(ExecutionId::new));
                record(attempt, AfterStage::Begun { execution }).await?;
            }
            let cancelled = self.handle.cancelled();
            let tried = self.tried(&state, job, key, (execution, before.is_open));
            // The cancellation is recorded.
            let Some(tried) = cancelled.run_until_cancelled(tried).await else { return Ok(()) };
            let error = match tried {
                Ok(result) => return record(attempt, AfterStage::Done { result }).await,
                Err(error) => Box::new(error),
            };
            self.unless_closing().await;
            let last = attempt >= job.attempts || !error.retryable;
            record(attempt, AfterStage::Failed { error, last }).await?;
            if last {
                return Ok(());
            }
            let pause = tokio::time::sleep(Duration::from_millis(job.pause_ms));
            if cancelled.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Makes an attempt within its time. `cut` says that a daemon before this one may have made it.
    async fn tried(
        &self,
        state: &ExecutionState,
        job: &AfterJob,
        key: AfterKey,
        (execution, cut): (Option<ExecutionId>, bool),
    ) -> Result<Value, ToolError> {
        let mut limit = Duration::from_secs(job.timeout_secs);
        if matches!(job.when, AfterWhen::Output { .. }) {
            limit = limit.min(self.left(state).map_err(|(_, error)| error)?);
        }
        let mut handed = handed(state, key);
        if let Some(Transform { script, args, timeout_seconds }) = &job.transform {
            let argv: Vec<_> = [script].into_iter().chain(args.iter().flatten()).cloned().collect();
            let limit = Duration::from_secs(timeout_seconds.unwrap_or(TRANSFORM_SECS));
            let work = async {
                let at = self.own_place(state, limit).await?;
                self.ran(at, &argv, BTreeMap::new(), limit, &handed).await
            };
            let made = tokio::time::timeout(limit + PLACE, work).await;
            handed.output =
                made.map_err(|_| ToolError::deadline(Layer::Actor, limit.as_secs()))??;
        }
        let work = async {
            match &job.action {
                AfterAction::Agent { planned, template, .. } => {
                    self.hand_to_agent(
                        state,
                        planned.as_deref(),
                        template.as_deref(),
                        execution,
                        &handed,
                    )
                    .await
                }
                AfterAction::Container { machine, argv, env } => {
                    let at = self.container(state, machine, &handed, limit).await?;
                    let said = self.ran(at, argv, env.clone(), limit, &handed).await?;
                    let caller = OnBehalfOf::own(Self::child(state), limit);
                    let (tools, id) = (&self.shared.machines.tools, state.begun.id);
                    // A machine that stays ends with the execution.
                    let _stays = tools.remove(id, &caller, &at.to_string()).await;
                    Ok(json!(shown(&said)))
                }
                AfterAction::Tool { name, arguments } => {
                    self.hand_to_tool(state, name, arguments, cut, &handed).await
                }
                AfterAction::Request(request) => self.request(state, request, limit, &handed).await,
                AfterAction::Mail(mail) => self.mailed(state, mail, &handed).await,
            }
        };
        match tokio::time::timeout(limit, work).await {
            Ok(tried) => tried,
            Err(_over) => {
                if let (Some(id), Some(runs)) = (execution, self.shared.runs()) {
                    runs.cancel(DAEMON, &id.to_string()).await?;
                }
                Err(ToolError::deadline(Layer::Actor, limit.as_secs()))
            }
        }
    }

    async fn hand_to_agent(
        &self,
        state: &ExecutionState,
        planned: Option<&JudgePlan>,
        template: Option<&str>,
        execution: Option<ExecutionId>,
        handed: &Handed,
    ) -> Result<Value, ToolError> {
        let missing = || ToolError::internal("the agent of the handler was not planned");
        let (planned, id) = (planned.ok_or_else(missing)?, execution.ok_or_else(missing)?);
        let runs = self.shared.runs().ok_or_else(ToolError::daemon_stopping)?;
        let name = id.to_string();
        if runs.get(DAEMON, &name).is_err() {
            let text = match template {
                Some(template) => rendered(template, state, handed)?,
                None => handed.output.clone(),
            };
            let input = serde_json::from_str::<JsonObject>(&text).unwrap_or_else(|_| {
                JsonObject::from_iter([("prompt".to_owned(), Value::String(text))])
            });
            let plan = planned.asked(input)?;
            let begun = ExecutionBegun {
                id,
                user: state.begun.user,
                session: Self::child(state),
                payer: state.begun.payer,
                parent: Some(state.begun.id),
                judges: true,
                counts_calls: state.counts_calls(),
                plan,
                at: Utc::now(),
            };
            let agent = begun.plan.agent.clone();
            runs.begin(id, Record::Begun(Box::new(begun))).await?;
            relatives::note_child(&runs, state.begun.id, id, agent).await?;
        }
        let ended = runs.ended(DAEMON, &name).await?;
        match ended.state.end.as_deref() {
            Some(ExecutionEnd::Completed { output }) => {
                Ok(json!({ "execution_id": id, "output": shown(output) }))
            }
            Some(ExecutionEnd::Failed { error }) => {
                Err(ToolError { retryable: false, ..(**error).clone() })
            }
            Some(ExecutionEnd::Cancelled) | None => Err(ToolError::cancelled()),
        }
    }

    /// Calls a tool. One that may have been called is called again if that does no more.
    async fn hand_to_tool(
        &self,
        state: &ExecutionState,
        name: &str,
        arguments: &JsonObject,
        cut: bool,
        handed: &Handed,
    ) -> Result<Value, ToolError> {
        let session = Self::child(state);
        let cancelled = self.handle.cancelled();
        let tools = repeated(cancelled, || ready(self.shared.children.tools(session))).await?;
        let tool = tools.iter().find(|tool| tool.declared == name);
        if cut && !tool.is_some_and(is_repeatable) {
            let message = format!("the daemon ended during the call of `{name}`");
            return Err(ToolError::new(Layer::Actor, codes::HANDLER_INTERRUPTED, message)
                .next("look whether it took effect; it is not called again"));
        }
        let mut arguments = Value::Object(arguments.clone());
        fill(&mut arguments, &|text| rendered(text, state, handed))?;
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::internal("filled arguments are an object"));
        };
        let cancel = self.handle.cancelled().child_token();
        let _stop = cancel.clone().drop_guard();
        let answer = self.made((session, None), name, &arguments, None, &cancel).await;
        let answer = answer.map_err(|error| ToolError { retryable: false, ..error })?;
        Ok(json!(shown(&answer.value.to_string())))
    }

    async fn request(
        &self,
        state: &ExecutionState,
        request: &RequestPlan,
        timeout: Duration,
        handed: &Handed,
    ) -> Result<Value, ToolError> {
        let plan = &state.begun.plan;
        let body = match &request.body_template {
            Some(template) => rendered(template, state, handed)?,
            None => json!({
                "execution_id": state.begun.id, "agent_id": plan.agent_id, "agent": plan.agent,
                "version": plan.version, "status": handed.status, "output": handed.output,
                "error": Some(&handed.error).filter(|error| !error.is_empty()),
            })
            .to_string(),
        };
        let sender = self.port::<dyn OutboundRequests>().await?;
        let answer = sender.send(OutboundRequest {
            method: request.method.map_or("POST", method).to_owned(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            key: handed.key.clone(),
            body,
            timeout,
            most_bytes: 2 * RESULT_BYTES,
        });
        let answer = answer.await?;
        Ok(json!({ "status": answer.status, "answer": shown(&answer.body) }))
    }

    async fn mailed(
        &self,
        state: &ExecutionState,
        plan: &MailPlan,
        handed: &Handed,
    ) -> Result<Value, ToolError> {
        let text = |template: &Option<String>, default: String| match template {
            Some(template) => rendered(template, state, handed),
            None => Ok(default),
        };
        let subject = format!("{}: {}", state.begun.plan.agent, handed.status);
        let said = if handed.error.is_empty() { &handed.output } else { &handed.error };
        let letter = Mail {
            reply_to: None,
            to: plan.to.all().to_vec(),
            subject: text(&plan.subject, subject)?,
            body: text(&plan.body_template, said.clone())?,
            key: handed.key.clone(),
        };
        let mailer = self.shared.mailer.as_ref().ok_or_else(mail::not_configured)?;
        let sent = mailer.send(state.begun.user, letter).await;
        sent.map(|message_id| json!({ "message_id": message_id }))
    }

    /// Port of a family that may be behind this one.
    async fn port<P: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<P>, ToolError> {
        let until = Instant::now() + STARTING;
        loop {
            match self.shared.daemon.ports.need::<P>() {
                Err(_) if Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
                found => return found,
            }
        }
    }

    async fn own_place(
        &self,
        state: &ExecutionState,
        limit: Duration,
    ) -> Result<WorkspaceId, ToolError> {
        let span = tracing::info_span!("transform", execution = %state.begun.id);
        let cancel = self.handle.cancelled().child_token();
        let session = state.child.ok_or_else(|| {
            let message = "the execution had no session, so it has no machine".to_owned();
            ToolError::new(Layer::Actor, codes::HANDLER_COMMAND_FAILED, message)
                .next("look why the execution failed")
        })?;
        let cx = CallCx::internal(session, limit, cancel, span);
        let places = self.port::<dyn Places>().await?;
        Ok(places.workspace(&cx, Some(SESSION_PLACE)).await?.workspace)
    }

    /// Machine of a command. One that was made before a crash is found by its name, and ends with the execution.
    async fn container(
        &self,
        state: &ExecutionState,
        machine: &AgentMachinePlan,
        handed: &Handed,
        limit: Duration,
    ) -> Result<WorkspaceId, ToolError> {
        #[derive(Deserialize)]
        struct Made {
            workspace_id: WorkspaceId,
        }
        let (tools, session) = (&self.shared.machines.tools, Self::child(state));
        let (id, caller) = (state.begun.id, OnBehalfOf::own(session, limit));
        let place = handed.key.split('-').skip(1).collect::<Vec<_>>().join("-");
        let name = format!("{}-{place}", own_workspace_name(session));
        let known = tools.workspaces(id, &caller).await?.into_iter().find(|row| row.name == name);
        if let Some(known) = known {
            return Ok(known.workspace_id);
        }
        let mut request = machine.request.clone();
        request.insert("name".to_owned(), json!(name));
        let made: Made = tools.call(id, &caller, "workspace_create", request).await?;
        Ok(made.workspace_id)
    }

    /// Runs a command as a task, once whatever happens, with the output as its input; what it wrote.
    async fn ran(
        &self,
        at: WorkspaceId,
        argv: &[String],
        env: BTreeMap<String, String>,
        limit: Duration,
        handed: &Handed,
    ) -> Result<String, ToolError> {
        let words = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let command = format!("printf %s {} | {words}", quoted(&handed.output));
        if command.len() > SCRIPT_BYTES {
            let message = format!("the output is too large for a command: {} bytes", command.len());
            return Err(ToolError::new(Layer::Actor, TOO_LARGE, message)
                .next("have the agent write it to a file, and say where it is"));
        }
        let tasks = self.port::<dyn Tasks>().await?;
        let assignment = TaskAssignment {
            message_id: handed.key.clone(),
            task_id: handed.key.clone(),
            command,
            workdir: None,
            env,
            timeout_secs: limit.as_secs().max(1),
        };
        let mut result = tasks.put(at, assignment).await?.result;
        let sent = BTreeMap::from([(handed.key.clone(), handed.key.clone())]);
        let result: TaskResult = loop {
            if let Some(result) = result {
                break result;
            }
            let mut hints = tasks.hints(at).await?;
            let page = tasks.results(at, 0, 20, &sent).await?;
            if page.results.is_empty() {
                hints.next().await;
            }
            result = page.results.into_iter().next();
        };
        let (out, said) = (result.capture.stdout, result.capture.stderr.text);
        let how = match result.outcome {
            TaskOutcome::Exited { exit_code: 0 } if !out.truncated => return Ok(out.text),
            TaskOutcome::Exited { exit_code: 0 } => format!("wrote {} bytes", out.total_bytes),
            TaskOutcome::Exited { exit_code } => format!("exited with {exit_code}"),
            other => format!("did not come to its end: {}", other.word()),
        };
        let name = argv.first().map_or("", String::as_str);
        let message = format!("`{name:.80}` {how}: {}", shown(said.trim()));
        Err(ToolError::new(Layer::Actor, codes::HANDLER_COMMAND_FAILED, message)
            .next("mend the command; it is not run again"))
    }
}

fn handed(state: &ExecutionState, key: AfterKey) -> Handed {
    let said = || state.said.as_deref().unwrap_or_default().to_owned();
    let (output, status, error) = match state.end.as_deref() {
        Some(ExecutionEnd::Completed { output }) => (output.clone(), "completed", String::new()),
        Some(ExecutionEnd::Failed { error }) => (said(), "failed", error.to_text()),
        Some(ExecutionEnd::Cancelled) => (said(), "cancelled", String::new()),
        None => match state.conclusion() {
            Some(Conclusion::Ends(ExecutionEnd::Completed { output })) => {
                (output, "completed", String::new())
            }
            _ => (said(), "completed", String::new()),
        },
    };
    let (iteration, turn, number) = key;
    let mut key = format!("{}-{iteration}-{turn}-{number}", state.begun.id);
    if state.forks.rewinds > 0 {
        // An output that was dropped may have had the same place.
        key.push_str(&format!("-{}", state.forks.rewinds));
    }
    Handed { output, status, error, key }
}

fn rendered(template: &str, state: &ExecutionState, handed: &Handed) -> Result<String, ToolError> {
    let plan = &state.begun.plan;
    let input = Value::Object(plan.input.clone()).to_string();
    let values = [
        ("output", handed.output.as_str()),
        ("output_json", &json!(handed.output).to_string()),
        ("status", handed.status),
        ("error", &handed.error),
        ("execution_id", &state.begun.id.to_string()),
        ("agent", &plan.agent),
        ("intent", plan.intent.as_deref().unwrap_or_default()),
        ("input", &input),
    ];
    let values = values.map(|(name, text)| TemplateValue::text(name, text));
    template::render(template, TemplateHelpers::None, &values).map_err(|why| {
        let message = format!("a template of what is handed on is not usable: {why}");
        ToolError::new(Layer::Actor, codes::AGENT_PROMPT_INVALID, message)
            .next("mend the template, and deploy the agent with a higher version")
    })
}

/// Renders all texts of a value.
fn fill(
    value: &mut Value,
    render: &impl Fn(&str) -> Result<String, ToolError>,
) -> Result<(), ToolError> {
    match value {
        Value::String(text) => *text = render(text)?,
        Value::Array(list) => list.iter_mut().try_for_each(|value| fill(value, render))?,
        Value::Object(object) => object.values_mut().try_for_each(|value| fill(value, render))?,
        _ => {}
    }
    Ok(())
}

fn is_repeatable(tool: &ChildTool) -> bool {
    matches!(tool.effect, Effect::Read | Effect::Idempotent)
}

/// A result as its event shows it.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(RESULT_BYTES)]
}

fn method(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "GET",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    }
}
