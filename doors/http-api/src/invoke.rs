//! `POST /api/tools/{id}/invoke`: one call of a tool, answered with its result and its events.

mod answer;
mod large;

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use chrono::Utc;
use hivekeep_door_server::{codes, http::caller::HttpCaller, result_form::ResultForm};
use hivekeep_kernel::{
    Door, Layer, Progress, ReceiptPad, SessionId, ToolError, ToolSpec, TraceContext,
};
use hivekeep_policy::input_digest;
use hivekeep_registry::{ApprovalRoute, CallOutcome, CallRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::{
    descriptor::tool_id,
    error::ApiError,
    extract::{BodyOf, CallScope, PathOf, QueryOf, ScopeQuery, Worker},
    idempotency::{BODY_BYTES, Begun, KeptOutcome, KeptRun},
    published::{AnyErrorBody, ToolErrorBody, ToolInvokeResponse, ToolReason},
    state::Api,
};
use answer::{Beside, CallNote, failure, success};
use large::LargeAnswer;

/// Characters of a text that only goes with a call.
const NOTE_CHARS: usize = 200;
/// Fields that are named as sensitive.
const FIELDS: usize = 100;

/// A call.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
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
    let trace = trace(&headers);
    let tool = entry.spec;
    let run = ToolRun { api: api.clone(), caller, scope, tool, input, body, trace, bare: false };
    run.answer(&headers).await
}

impl Api {
    /// Calls a tool for a route of its own, in the caller's lasting session: the answer is the result alone.
    pub(super) async fn call_tool(
        self: &Arc<Self>,
        caller: HttpCaller,
        tool: &str,
        input: Map<String, Value>,
        headers: &HeaderMap,
    ) -> Result<Response, ApiError> {
        let (tool, trace) = (self.entry(tool)?.spec, trace(headers));
        let scope = self.scope(&caller, &ScopeQuery::default())?;
        let (api, body) = (self.clone(), InvokeBody::default());
        let run = ToolRun { api, caller, scope, tool, input, body, trace, bare: true };
        run.answer(headers).await
    }
}

/// A request that was carried out or refused, before it is decided what is kept of it.
struct MadeCall {
    answer: Result<Response, ApiError>,
    receipt: Option<ReceiptPad>,
    /// False when nothing was done.
    done: bool,
}

/// A call that may be made.
pub(super) struct ToolRun {
    pub(super) api: Arc<Api>,
    pub(super) caller: HttpCaller,
    pub(super) scope: CallScope,
    pub(super) tool: &'static ToolSpec,
    pub(super) input: Map<String, Value>,
    pub(super) body: InvokeBody,
    /// Trace that the caller says the call belongs to.
    pub(super) trace: Option<TraceContext>,
    /// True to answer with the result alone, without what is told beside it.
    pub(super) bare: bool,
}

/// True for a refusal before the call reached its actor.
fn nothing_done(error: &ToolError) -> bool {
    let before = match error.layer {
        Layer::Resolve | Layer::Policy | Layer::Approval | Layer::Schema => true,
        Layer::Rate | Layer::Admission => true,
        // A session that ended may have done so while the call ran.
        Layer::Session => error.is(codes::SESSION_UNKNOWN),
        _ => false,
    };
    before || error.details.get("outcome").is_some_and(|outcome| outcome == "nothing_done")
}

impl ToolRun {
    /// Makes the call, once where the request has a key.
    async fn answer(self, headers: &HeaderMap) -> Result<Response, ApiError> {
        match super::idempotency::key(headers)? {
            None => self.now().await,
            Some(key) => {
                let (api, begun) = (self.api.clone(), self.begun(key));
                api.keys.once(begun, self.kept()).await
            }
        }
    }

    /// Makes the call and answers with its outcome. Dropping this cancels the call.
    async fn now(self) -> Result<Response, ApiError> {
        let MadeCall { answer, receipt, .. } = self.made().await;
        // The receipt is signed once the answer is handed to the connection: HTTP has no acknowledgement from
        // the client.
        receipt.into_iter().for_each(ReceiptPad::sign);
        answer
    }

    /// The request as its key stands for it: a token is no part of it.
    fn begun(&self, key: String) -> Begun {
        let mut said = self.input.clone();
        let session = self.scope.session.map(|session| session.to_string());
        let beside = json!([session, self.scope.workspace, self.scope.agent()]);
        // A slash is in no name of a tool's field.
        said.insert("/scope".to_owned(), beside);
        // The answer has another form.
        if self.bare {
            said.insert("/bare".to_owned(), Value::Bool(true));
        }
        let (user, tool) = (self.caller.user, tool_id(self.tool));
        Begun { user, key, tool, request: input_digest(&said), at: Utc::now() }
    }

    /// Makes the call, for an answer that is kept unless it is large.
    async fn kept(self) -> KeptRun {
        let MadeCall { answer, receipt, done } = self.made().await;
        let (head, body) = answer.unwrap_or_else(IntoResponse::into_response).into_parts();
        // The body is in memory already.
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let outcome = done.then(|| KeptOutcome::of(head.status, &body, BODY_BYTES));
        KeptRun { answer: Response::from_parts(head, Body::from(body)), outcome, receipt }
    }

    async fn made(self) -> MadeCall {
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return MadeCall { answer: Err(error), receipt: None, done: false },
        };
        let mut outcome = self.call(session).await;
        let receipt = outcome.receipt.take();
        let beside = Beside::of(&mut outcome);
        let note = CallNote::new(&self, session, &outcome);
        let done = outcome.result.as_ref().err().is_none_or(|error| !nothing_done(error));
        let from_source = outcome.from_source;
        let failed = outcome.result.as_ref().err();
        let large = failed.filter(|_| !self.bare).and_then(LargeAnswer::of);
        let answer = match (large, outcome.result) {
            (Some(large), Err(_)) => Ok(large.answer(note, beside, &self.body)),
            (_, Ok(result)) if self.bare => Ok(Json(result).into_response()),
            (_, Ok(result)) => {
                let json = result.to_string();
                let result = ResultForm::of(result, from_source, self.tool.content);
                Ok(success(note, result, json, beside, &self.body))
            }
            (None, Err(error)) => Err(failure(note, error, &tool_id(self.tool))),
        };
        MadeCall { answer, receipt, done }
    }

    /// The session of the call: the one that is named, or the caller's lasting one.
    async fn session(&self) -> Result<SessionId, ApiError> {
        let api = &self.api;
        match self.scope.session {
            Some(session) => {
                api.held.touch(session).await?;
                Ok(session)
            }
            None => {
                let client = || format!("HTTP API ({})", self.caller.name);
                Ok(api.lasting.of(self.caller.user, client).await?)
            }
        }
    }

    async fn call(&self, session: SessionId) -> CallOutcome {
        self.api
            .core
            .dispatcher
            .call(CallRequest {
                session,
                door: Door::HttpApi,
                tool: self.tool.name.to_owned(),
                args: self.input.clone(),
                progress: Progress::default(),
                cancel: CancellationToken::new(),
                timeout: None,
                view: self.scope.view.clone(),
                trace: self.trace.clone(),
                effect: None,
                approval: ApprovalRoute {
                    token: self.body.approval_token.clone().filter(|token| !token.is_empty()),
                    workspace: self.scope.workspace.clone(),
                    caller: Some(self.caller.user),
                    ..ApprovalRoute::default()
                },
            })
            .await
    }
}
