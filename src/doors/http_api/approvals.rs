//! Approvals: made as tokens for one call, looked at, decided.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, Door, Layer, ToolError, ports::UserReply};
use hivekeep_policy::{Approval, ApprovalAnswer, Approver, Remember, WantedCall, input_digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::{
    descriptor::tool_id,
    error::ApiError,
    extract::{BodyOf, OperatorOnly, PathOf, QueryOf, Reader, Worker},
    published::{AnyErrorBody, PlainErrorBody, ToolErrorBody, ToolReason},
    scope::ScopeQuery,
    state::Api,
};
use crate::{codes, credentials::CredentialScope, doors::http::caller::HttpCaller};

/// Characters of an input that are shown.
const SHOWN: usize = 2_000;

/// A token for one call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ApprovalRequest)]
pub(super) struct MintBody {
    /// Session that the call is made in.
    #[schema(required = true, example = "ses_0192f0c1a2b37c4d8e5f60718293a4b5")]
    #[serde(default)]
    session_id: String,
    workspace_id: Option<String>,
    agent_name: Option<String>,
    /// Input of the call; an empty object without it.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// Digest of the input, as events and refusals have it: checked against the input, or in its place.
    #[schema(
        pattern = "^sha256:[0-9a-f]{64}$",
        example = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )]
    input_digest: Option<String>,
}

/// A token, which nobody can be shown again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalToken)]
pub(super) struct TokenPayload {
    approval_token: String,
    /// When it is over.
    #[schema(value_type = String, format = DateTime)]
    expires_at: DateTime<Utc>,
    tool_id: String,
    input_digest: String,
    /// Id of the approval. An addition.
    approval_id: String,
}

/// A token for one call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalResponse)]
pub(super) struct TokenBody {
    approval: TokenPayload,
}

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
    /// Beginning of the input, without credentials.
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
}

/// Approvals, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalList)]
pub(super) struct ApprovalsBody {
    approvals: Vec<ApprovalPayload>,
}

/// One approval.
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
    /// What a yes is remembered for: `once`, or `session` for further calls of the tool by the session.
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
}

impl From<ReplyBody> for UserReply {
    fn from(body: ReplyBody) -> Self {
        Self { selected: body.selected, text: body.text }
    }
}

/// What a yes is remembered for.
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
        }
    }
}

fn approver(caller: &HttpCaller) -> Approver {
    Approver { user: caller.user, door: Door::HttpApi }
}

impl MintBody {
    fn scope(&self) -> ScopeQuery {
        ScopeQuery {
            workspace_id: self.workspace_id.clone(),
            workspace: None,
            session_id: Some(self.session_id.clone()).filter(|id| !id.trim().is_empty()),
            agent_name: self.agent_name.clone(),
        }
    }

    /// The scope of body and query, which may not disagree.
    fn agreed(&self, query: ScopeQuery) -> Result<ScopeQuery, ApiError> {
        let body = self.scope();
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.is_some() && other.is_some() && one != other
        };
        let workspace = query.workspace();
        if differ(&body.session_id, &query.session_id)
            || differ(&body.workspace_id, &workspace)
            || differ(&body.agent_name, &query.agent_name)
        {
            let why = "body and query name different scopes";
            return Err(ApiError::invalid(ToolReason::ApprovalTokenMismatch, why));
        }
        Ok(body.or(query))
    }

    /// The input as far as it is given, and the digest that the token is bound to.
    fn digest(&self) -> Result<(Option<Map<String, Value>>, String), ApiError> {
        let mismatch = |why| ApiError::invalid(ToolReason::ApprovalTokenMismatch, why);
        let input = match &self.input {
            None if self.input_digest.is_some() => None,
            None => Some(Map::new()),
            Some(Value::Object(input)) => Some(input.clone()),
            Some(_) => {
                let why = "`input` should be an object";
                return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
            }
        };
        let own = input.as_ref().map(input_digest);
        match (own, &self.input_digest) {
            (Some(own), Some(given)) if own != *given => {
                Err(mismatch("`input_digest` is not the digest of `input`"))
            }
            (Some(own), _) => Ok((input, own)),
            (None, Some(given)) if is_digest(given) => Ok((None, given.clone())),
            (None, _) => Err(mismatch("`input_digest` should be `sha256:` and 64 hex digits")),
        }
    }
}

fn is_digest(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:").is_some_and(|it| it.len() == 64 && it.bytes().all(hex))
}

impl Api {
    fn wanted(
        &self,
        caller: &HttpCaller,
        id: &str,
        body: &MintBody,
        query: ScopeQuery,
    ) -> Result<WantedCall, ApiError> {
        let entry = self.entry(id)?;
        let scope = self.scope(caller, &body.agreed(query)?)?;
        let session = scope.session.ok_or_else(|| {
            ApiError::invalid(ToolReason::SchemaInvalid, "`session_id` is missing")
        })?;
        let (input, input_digest) = body.digest()?;
        let shown = match &input {
            Some(input) => {
                let args = Value::Object(input.clone());
                entry.check(&args).map_err(|error| ApiError::of_call(error, id))?;
                self.core
                    .dispatcher
                    .redactor()
                    .text(&args.to_string())
                    .chars()
                    .take(SHOWN)
                    .collect()
            }
            None => "only the digest was given".to_owned(),
        };
        Ok(WantedCall {
            tool: entry.name().to_owned(),
            session,
            user: scope.user,
            door: Door::HttpApi,
            agent: scope.agent(),
            workspace: scope.workspace,
            input_digest,
            input: shown,
        })
    }

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

/// Make an approval of one call, as a token that is good for it once.
///
/// Whoever makes the call cannot approve it, unless the operator's configuration says so.
#[utoipa::path(
    post, path = "/api/tools/{id}/approvals", tag = "tools", operation_id = "approveTool",
    params((
            "id" = String, Path, description = "Tool id", example = "workspace_list",
            max_length = 64, pattern = "^[a-z][a-z0-9_]*$",
        ), ScopeQuery),
    request_body = MintBody,
    responses(
        (status = 201, description = "The token.", body = TokenBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "The caller may not approve it.", body = AnyErrorBody),
        (status = 404, description = "No such tool, or session of the caller.", body = AnyErrorBody),
        (status = 422, description = "Too many tokens are out.", body = ToolErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn mint(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
    QueryOf(asked): QueryOf<ScopeQuery>,
    BodyOf(body): BodyOf<MintBody>,
) -> Result<(StatusCode, Json<TokenBody>), ApiError> {
    let call = api.wanted(&caller, &id, &body, asked)?;
    let approvals = api.core.dispatcher.policy().approvals();
    let minted = approvals
        .mint(call, &approver(&caller))
        .await
        .map_err(|error| ApiError::of_call(error, &id))?;
    let approval = TokenPayload {
        approval_token: minted.token,
        expires_at: minted.approval.expires_at,
        tool_id: api.entry(&id).map(|entry| tool_id(&entry.info.spec))?,
        input_digest: minted.approval.call.input_digest,
        approval_id: minted.approval.id.to_string(),
    };
    Ok((StatusCode::CREATED, Json(TokenBody { approval })))
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
