//! `POST /api/tools/{id}/approvals`: an approval of one call, made as a token.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use hivekeep_door_server::http::caller::HttpCaller;
use hivekeep_kernel::Door;
use hivekeep_policy::{WantedCall, input_digest, input_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::approver;
use crate::{
    descriptor::tool_id,
    error::ApiError,
    extract::{BodyOf, PathOf, QueryOf, ScopeQuery, Worker},
    published::{AnyErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};

/// A token for one call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ApprovalRequest)]
pub(in super::super) struct MintBody {
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
pub(in super::super) struct TokenPayload {
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
pub(in super::super) struct TokenBody {
    approval: TokenPayload,
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
        let (input, input_chars) = match &input {
            Some(input) => {
                let args = Value::Object(input.clone());
                entry.check(&args).map_err(|error| ApiError::of_call(error, id))?;
                input_text(&self.core.dispatcher.redactor().input(input))
            }
            None => ("only the digest was given".to_owned(), 0),
        };
        Ok(WantedCall {
            tool: entry.name().to_owned(),
            session,
            user: scope.user,
            door: Door::HttpApi,
            agent: scope.agent(),
            workspace: scope.workspace,
            input_digest,
            input,
            input_chars,
        })
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
pub(in super::super) async fn mint(
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
        tool_id: api.entry(&id).map(|entry| tool_id(entry.spec))?,
        input_digest: minted.approval.call.input_digest,
        approval_id: minted.approval.id.to_string(),
    };
    Ok((StatusCode::CREATED, Json(TokenBody { approval })))
}
