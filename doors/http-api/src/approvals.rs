//! Approvals: made as tokens for one call, looked at, decided.

pub(super) mod mint;

use std::sync::Arc;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use hivekeep_door_server::{codes, credentials::CredentialScope, http::caller::HttpCaller};
use hivekeep_kernel::{ApprovalId, Door, Layer, ToolError};
use hivekeep_policy::{Approval, ApprovalAnswer, Approver, Remember};
use hivekeep_ports::UserReply;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    error::ApiError,
    extract::{BodyOf, OperatorOnly, PathOf, QueryOf, Reader},
    published::{AnyErrorBody, PlainErrorBody, ToolErrorBody},
    state::Api,
};

/// An approval that was asked for or given.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Approval)]
pub(super) struct ApprovalPayload {
    id: String,
    tool_id: String,
    session_id: String,
    /// The user whose call it is.
    user: String,
    agent_name: Option<String>,
    workspace_id: Option<String>,
    input_digest: String,
    /// The input, without credentials; in a list its beginning. What is left out is told behind it.
    input: String,
    /// Why a person is asked.
    why: String,
    /// `pending`, `approved`, `denied`, `timed_out`, `withdrawn` or `used`.
    state: String,
    #[schema(value_type = String, format = DateTime)]
    asked_at: DateTime<Utc>,
    #[schema(value_type = String, format = DateTime)]
    expires_at: DateTime<Utc>,
    decided_by: Option<String>,
    decided_why: Option<String>,
    /// The question, if it is one of `ask_user` rather than a call: `question`, `options`, `multi_select`,
    /// `free_text`. It is answered by `reply`.
    #[schema(value_type = Option<Object>)]
    question: Option<Value>,
}

/// Approvals, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalList)]
pub(super) struct ApprovalsBody {
    approvals: Vec<ApprovalPayload>,
}

/// Response with an approval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalView)]
pub(super) struct ApprovalBody {
    approval: ApprovalPayload,
}

/// A person's answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ApprovalAnswer)]
pub(super) struct AnswerBody {
    /// Why, for the caller and the records.
    #[schema(max_length = 1000)]
    why: Option<String>,
    /// Calls that a yes is remembered for: `once`, or `session` for later ones of the tool in the session.
    #[serde(default)]
    remember: RememberFor,
    /// The reply to a question of `ask_user`.
    reply: Option<ReplyBody>,
}

/// A person's reply to a question.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ApprovalReply)]
pub(super) struct ReplyBody {
    /// Options that were chosen, by their places.
    #[serde(default)]
    #[schema(max_items = 100)]
    selected: Vec<usize>,
    /// Text that was typed.
    #[schema(max_length = 4000)]
    text: Option<String>,
    /// Values of the question's fields, by their names.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, Value>)]
    values: Map<String, Value>,
}

impl From<ReplyBody> for UserReply {
    fn from(body: ReplyBody) -> Self {
        Self { selected: body.selected, text: body.text, values: body.values }
    }
}

/// Calls that a yes is remembered for.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RememberFor {
    /// This call.
    #[default]
    Once,
    /// Calls of the tool by the session.
    Session,
}

/// Approvals that are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ApprovalsQuery {
    /// Also those that are decided.
    #[serde(default)]
    all: bool,
}

impl From<Approval> for ApprovalPayload {
    fn from(approval: Approval) -> Self {
        let Approval { id, call, why, state, asked_at, expires_at, .. } = approval;
        let state = serde_json::to_value(state).unwrap_or_default();
        Self {
            id: id.to_string(),
            tool_id: call.tool.replace('.', "_"),
            session_id: call.session.to_string(),
            user: call.user.to_string(),
            agent_name: call.agent,
            workspace_id: call.workspace,
            input_digest: call.input_digest,
            input: call.input,
            why,
            state: state.as_str().unwrap_or_default().to_owned(),
            asked_at,
            expires_at,
            decided_by: approval.decided_by,
            decided_why: approval.decided_why,
            question: approval.question.map(|question| json!(question)),
        }
    }
}

pub(super) fn approver(caller: &HttpCaller) -> Approver {
    Approver { user: caller.user, door: Door::HttpApi }
}

impl Api {
    fn approval(&self, id: &str) -> Result<Approval, ApiError> {
        let found =
            id.parse().ok().and_then(|id| self.core.dispatcher.policy().approvals().get(id));
        found.ok_or_else(|| ApiError::not_there("approval", id))
    }

    async fn decide(
        &self,
        caller: &HttpCaller,
        id: &str,
        answer: ApprovalAnswer,
    ) -> Result<Json<ApprovalBody>, ApiError> {
        let id: ApprovalId = self.approval(id)?.id;
        let approvals = self.core.dispatcher.policy().approvals();
        match approvals.decide(id, &approver(caller), answer).await {
            Ok(approval) => Ok(Json(ApprovalBody { approval: approval.into() })),
            Err(error) if error.is(codes::APPROVAL_NOT_FOUND) => {
                let why = "it is decided already, or over";
                Err(ApiError::conflict(ToolError::new(
                    Layer::Approval,
                    codes::APPROVAL_NOT_FOUND,
                    why,
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// List approvals that wait for a person: of the caller's own calls, or all for operators and readers.
#[utoipa::path(
    get, path = "/api/approvals", tag = "hivekeep", operation_id = "listApprovals",
    params(ApprovalsQuery),
    responses((status = 200, description = "Approvals, the oldest first.", body = ApprovalsBody)),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(query): QueryOf<ApprovalsQuery>,
) -> Json<ApprovalsBody> {
    let mut all = api.core.dispatcher.policy().approvals().list(query.all);
    all.retain(|one| may_see(&caller, one));
    Json(ApprovalsBody { approvals: all.into_iter().map(ApprovalPayload::from).collect() })
}

fn may_see(caller: &HttpCaller, approval: &Approval) -> bool {
    caller.scope != CredentialScope::Session || approval.call.user == caller.user
}

/// Look at an approval.
#[utoipa::path(
    get, path = "/api/approvals/{id}", tag = "hivekeep", operation_id = "getApproval",
    params(("id" = String, Path, description = "Approval")),
    responses(
        (status = 200, description = "The approval.", body = ApprovalBody),
        (status = 404, description = "No such approval within the caller's reach.", body = PlainErrorBody),
    ),
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
) -> Result<Json<ApprovalBody>, ApiError> {
    let approval = api.approval(&id)?;
    match may_see(&caller, &approval) {
        true => Ok(Json(ApprovalBody { approval: approval.into() })),
        false => Err(ApiError::not_there("approval", &id)),
    }
}

/// Approve a call that waits. Its caller repeats it, unless it waits for the answer.
#[utoipa::path(
    post, path = "/api/approvals/{id}/approve", tag = "hivekeep", operation_id = "approve",
    params(("id" = String, Path, description = "Approval")), request_body = AnswerBody,
    responses(
        (status = 200, description = "It is approved.", body = ApprovalBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "The caller may not approve it.", body = AnyErrorBody),
        (status = 404, description = "No such approval.", body = PlainErrorBody),
        (status = 409, description = "It is decided already.", body = ToolErrorBody),
        (status = 422, description = "Too much is remembered.", body = ToolErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn approve(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    PathOf(id): PathOf,
    BodyOf(body): BodyOf<AnswerBody>,
) -> Result<Json<ApprovalBody>, ApiError> {
    let remember = match body.remember {
        RememberFor::Once => Remember::Once,
        RememberFor::Session => Remember::Session,
    };
    api.decide(
        &caller,
        &id,
        ApprovalAnswer {
            approved: true,
            why: body.why,
            remember,
            reply: body.reply.map(UserReply::from),
        },
    )
    .await
}

/// Deny a call that waits, or take back an approval that was not used.
#[utoipa::path(
    post, path = "/api/approvals/{id}/deny", tag = "hivekeep", operation_id = "deny",
    params(("id" = String, Path, description = "Approval")), request_body = AnswerBody,
    responses(
        (status = 200, description = "It is denied.", body = ApprovalBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such approval.", body = PlainErrorBody),
        (status = 409, description = "It is decided or used already.", body = ToolErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn deny(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    PathOf(id): PathOf,
    BodyOf(body): BodyOf<AnswerBody>,
) -> Result<Json<ApprovalBody>, ApiError> {
    let answer =
        ApprovalAnswer { approved: false, why: body.why, remember: Remember::Once, reply: None };
    api.decide(&caller, &id, answer).await
}
