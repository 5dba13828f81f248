//! `POST /api/tools/{id}/invoke`: one call of a tool, answered with its result and its events.

mod answer;
mod foreign;
mod large;
mod run;

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use hivekeep_kernel::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    descriptor::tool_id,
    error::ApiError,
    extract::{BodyOf, PathOf, QueryOf, Worker},
    published::{AnyErrorBody, ToolErrorBody, ToolInvokeResponse, ToolReason},
    scope::ScopeQuery,
    state::Api,
};
use run::ToolRun;

/// Characters of a text that only goes with a call.
const NOTE_CHARS: usize = 200;
/// Fields that are named as sensitive.
const FIELDS: usize = 100;

/// A call.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[schema(as = InvokeRequest)]
pub(super) struct InvokeBody {
    /// The tool's input, by its input schema; an empty object without it.
    #[serde(default = "nothing")]
    #[schema(required = true, value_type = Object, example = json!({}))]
    pub(super) input: Value,
    /// Session to make the call in; without it the caller's own lasting one.
    pub(super) session_id: Option<String>,
    pub(super) workspace_id: Option<String>,
    pub(super) agent_name: Option<String>,
    /// The caller's id of the call, told in the result's metadata.
    #[schema(max_length = 200)]
    pub(super) tool_call_id: Option<String>,
    /// The caller's id of the turn, told in the result's metadata.
    #[schema(max_length = 200)]
    pub(super) turn_id: Option<String>,
    /// Told in the events; the call's id without it.
    #[schema(max_length = 200)]
    pub(super) correlation_id: Option<String>,
    /// Approval of this very call.
    #[schema(max_length = 200)]
    pub(super) approval_token: Option<String>,
    /// Names of fields, at any depth, whose values the digest of the input leaves out.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub(super) sensitive_input_fields: Vec<String>,
}

fn nothing() -> Value {
    Value::Object(Map::new())
}

impl InvokeBody {
    fn check(&self) -> Result<(), ApiError> {
        let invalid = |why: String| Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
        for (name, text) in [
            ("tool_call_id", &self.tool_call_id),
            ("turn_id", &self.turn_id),
            ("correlation_id", &self.correlation_id),
            ("approval_token", &self.approval_token),
        ] {
            if text.as_ref().is_some_and(|text| text.chars().count() > NOTE_CHARS) {
                return invalid(format!("`{name}` has more than {NOTE_CHARS} characters"));
            }
        }
        match self.sensitive_input_fields.len() > FIELDS {
            true => invalid(format!("`sensitive_input_fields` has more than {FIELDS} names")),
            false => Ok(()),
        }
    }

    fn scope(&self) -> ScopeQuery {
        ScopeQuery {
            workspace_id: self.workspace_id.clone(),
            workspace: None,
            session_id: self.session_id.clone(),
            agent_name: self.agent_name.clone(),
        }
    }
}

/// Trace context of a request (W3C), where it is valid.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext::parse(text("traceparent")?, text("tracestate"))
}

/// Call a tool.
///
/// With the header `Idempotency-Key`, the first outcome is kept for a day and answered again to the
/// same request; the call then goes on when its client leaves. Without it a call is cancelled when its
/// client leaves.
#[utoipa::path(
    post, path = "/api/tools/{id}/invoke", tag = "tools", operation_id = "invokeTool",
    params(
        (
            "id" = String, Path, description = "Tool id", example = "workspace_list",
            max_length = 64, pattern = "^[a-z][a-z0-9_]*$",
        ), ScopeQuery,
        (
            "Idempotency-Key" = Option<String>, Header, max_length = 200,
            description = "A key of the caller's choice, for one call with one input. An addition.",
        ),
    ),
    request_body = InvokeBody,
    responses(
        (status = 200, description = "It succeeded.", body = ToolInvokeResponse),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 400, description = "Request or input is not valid.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 404, description = "No such tool, or session of the caller.", body = AnyErrorBody),
        (status = 409, description = "It is against another call, or the state of things.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn invoke(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
    QueryOf(asked): QueryOf<ScopeQuery>,
    headers: HeaderMap,
    BodyOf(body): BodyOf<InvokeBody>,
) -> Result<Response, ApiError> {
    body.check()?;
    let entry = api.entry(&id)?;
    let id = tool_id(entry.spec);
    let Value::Object(input) = &body.input else {
        let why = "`input` should be an object";
        return Err(ApiError::invalid(ToolReason::SchemaInvalid, why).about(&id));
    };
    let mut input = input.clone();
    // Its digests and its key are those of the call.
    entry.respell(&mut input);
    let scope = api.scope(&caller, &body.scope().or(asked))?;
    if scope.session.is_none() && scope.profile.agent.is_some() {
        let why = "`agent_name` needs a session that works for the agent; an operator opens one";
        return Err(ApiError::invalid(ToolReason::SchemaInvalid, why).about(&id));
    }
    let key = super::idempotency::key(&headers)?;
    let trace = trace(&headers);
    let run = ToolRun { api: api.clone(), caller, scope, tool: entry.spec, input, body, trace };
    match key {
        None => run.now().await,
        Some(key) => api.keys.once(run.begun(key), run.kept()).await,
    }
}
