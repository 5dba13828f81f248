//! Adapter of the extension `io.modelcontextprotocol/tasks` (SEP-2663) to the deferred calls.
//!
//! A client that declares it gets a handle for a call that goes on, and asks for its end by `tasks/get`.
//! An end with a result, an error of the tool too, is `completed`; `failed` is for what would have been
//! an error of the protocol: no such tool, and a daemon that ended before the call did.

use chrono::{DateTime, SecondsFormat, Utc};
use hivekeep_door_server::result_form::{ContentOf, content_of};
use hivekeep_kernel::{DeferredId, ToolError};
use hivekeep_registry::{DeferredStatus, DeferredView};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CancelTaskParams, CreateTaskResult, DetailedTask, ElicitRequest, GetTaskParams,
        GetTaskResult, InputRequest, InputRequests, JsonObject, ProtocolVersion, Task, TaskPayload,
        TaskStatus, UpdateTaskParams,
    },
    service::RequestContext,
};
use serde::Serialize;

use super::{McpHandler, answer, elicit};

/// Interval between questions for a task that clients are asked to keep.
const POLL_MS: u64 = 1_000;

/// Whether the client of a request takes a task in place of a result.
pub(super) fn taken_by(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|it| it.supports_tasks())
}

/// The handle of a call that goes on.
pub(super) fn created(view: &DeferredView) -> CreateTaskResult {
    CreateTaskResult::new(task(view))
}

impl McpHandler {
    /// The task of an id, if it is the session's.
    pub(super) async fn task(
        &self,
        request: GetTaskParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let session = self.session(context).await?;
        let id = parsed(&request.task_id)?;
        let mut view = self.0.core.deferred.get(session, id).await.map_err(refused)?;
        if let DeferredStatus::Answered(outcome) = &mut view.status {
            outcome.waiting = self.0.core.dispatcher.waiting(session);
        }
        let task = task(&view);
        let content = content_of(&self.0.core, &view.tool);
        let payload = payload(view, context.protocol_version(), content)?;
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    /// Passes on what the person at the client said to the questions of a task.
    pub(super) async fn update(
        &self,
        request: UpdateTaskParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(context).await?;
        let (id, deferred) = (parsed(&request.task_id)?, &self.0.core.deferred);
        let view = deferred.get(session, id).await.map_err(refused)?;
        let DeferredStatus::Asks(questions) = view.status else { return Ok(()) };
        for (key, question) in questions {
            let Some(response) = request.input_responses.get(&key.to_string()) else { continue };
            let result = serde_json::from_value(response.clone()).map_err(|error| {
                ErrorData::invalid_params(format!("the response to {key}: {error}"), None)
            })?;
            let reply = elicit::reply(&question, &result);
            deferred.reply(session, id, key, reply).map_err(refused)?;
        }
        Ok(())
    }

    /// Cancels a task. One that has ended stays as it is.
    pub(super) async fn cancel(
        &self,
        request: CancelTaskParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(context).await?;
        let id = parsed(&request.task_id)?;
        self.0.core.deferred.cancel(session, id).map_err(refused)
    }
}

fn task(view: &DeferredView) -> Task {
    let status = match &view.status {
        DeferredStatus::Running => TaskStatus::Working,
        DeferredStatus::Asks(_) => TaskStatus::InputRequired,
        DeferredStatus::Answered(_) => TaskStatus::Completed,
        DeferredStatus::Cancelled => TaskStatus::Cancelled,
        DeferredStatus::Lost(_) => TaskStatus::Failed,
    };
    let (id, begun, changed) = (view.id.to_string(), time(view.begun_at), time(view.changed_at));
    let lasts_ms = u64::try_from(view.lasts.as_millis()).unwrap_or(u64::MAX);
    let mut task = Task::new(id, status, begun, changed);
    task.status_message = match &view.status {
        DeferredStatus::Lost(error) => Some(error.to_text()),
        _ => view.message.clone(),
    };
    task.with_ttl_ms(lasts_ms).with_poll_interval_ms(POLL_MS)
}

/// Payload of a task beside its state, for a client of this revision.
fn payload(
    view: DeferredView,
    revision: Option<ProtocolVersion>,
    content: ContentOf,
) -> Result<TaskPayload, ErrorData> {
    Ok(match view.status {
        DeferredStatus::Running => TaskPayload::Working,
        DeferredStatus::Cancelled => TaskPayload::Cancelled,
        DeferredStatus::Asks(questions) => {
            let forms = questions.iter().filter_map(|(id, question)| {
                let form = ElicitRequest::new(elicit::form(question)?);
                Some((id.to_string(), InputRequest::Elicitation(form)))
            });
            let input_requests: InputRequests = forms.collect();
            TaskPayload::InputRequired { input_requests }
        }
        DeferredStatus::Answered(outcome) => match answer::of(outcome, revision, content) {
            Ok(result) => TaskPayload::Completed { result: object(&result)? },
            Err(error) => TaskPayload::Failed { error: object(&error)? },
        },
        DeferredStatus::Lost(error) => {
            TaskPayload::Failed { error: object(&answer::protocol(error))? }
        }
    })
}

fn object(value: &impl Serialize) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        _ => Err(ErrorData::internal_error("a result is not an object", None)),
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Parses an id; an invalid one is answered like an unknown one.
fn parsed(id: &str) -> Result<DeferredId, ErrorData> {
    id.parse().map_err(|_| ErrorData::invalid_params("there is no task of this id", None))
}

fn refused(error: ToolError) -> ErrorData {
    let unknown = error.is(hivekeep_door_server::codes::DEFERRED_CALL_UNKNOWN);
    let text = error.to_text();
    let data = Some(serde_json::json!({ "error": error }));
    match unknown {
        true => ErrorData::invalid_params(text, data),
        false => ErrorData::internal_error(text, data),
    }
}
