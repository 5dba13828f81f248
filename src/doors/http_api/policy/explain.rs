//! `POST /api/policy/explain`: what each layer would say to a call, which is not made.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::doors::http_api::{
    decision::shown,
    error::ApiError,
    extract::{BodyOf, OperatorOnly},
    published::{AnyErrorBody, PublishedMode, ToolErrorBody, ToolVerdict},
    scope::ScopeQuery,
    sessions::word,
    state::Api,
};

/// A call to be explained.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExplainRequest)]
pub(in super::super) struct ExplainBody {
    /// Id of the tool.
    #[schema(max_length = 64, pattern = "^[a-z][a-z0-9_]*$", example = "workspace_list")]
    tool_id: String,
    /// Session that would call; without one, the caller.
    session_id: Option<String>,
    /// Agent that the call would be made for, where there is no session.
    agent_name: Option<String>,
    /// Input; without it, what depends on one is not ruled on.
    #[schema(value_type = Option<Object>)]
    input: Option<Map<String, Value>>,
}

/// What each layer says, and what comes of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(in super::super) struct ExplanationBody {
    /// `allowed`, `denied`, `unavailable` or `asks`.
    outcome: String,
    /// The verdicts in their order, up to the first denial.
    verdicts: Vec<ToolVerdict>,
    /// The mode that the call would be under.
    permission_mode: PublishedMode,
    /// Whether the tool is served now.
    availability: ToolVerdict,
}

/// Explain what would become of a call. Nobody is asked, and no approval is used up.
#[utoipa::path(
    post, path = "/api/policy/explain", tag = "hivekeep", operation_id = "explainCall",
    request_body = ExplainBody,
    responses(
        (status = 200, description = "The verdicts of the layers.", body = ExplanationBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such tool or session.", body = AnyErrorBody),
    ),
)]
pub(in super::super) async fn explain(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    BodyOf(body): BodyOf<ExplainBody>,
) -> Result<Json<ExplanationBody>, ApiError> {
    let ExplainBody { tool_id, session_id, agent_name, input } = body;
    let entry = api.entry(&tool_id)?;
    let asked = ScopeQuery { session_id, agent_name, ..ScopeQuery::default() };
    let scope = api.scope(&caller, &asked)?;
    let input = input.map(Value::Object);
    let view = api.decided(&scope, &entry, input.as_ref())?;
    Ok(Json(ExplanationBody {
        outcome: word(view.outcome),
        verdicts: view.verdicts.iter().map(shown).collect(),
        permission_mode: view.permission_mode.into(),
        availability: shown(&view.availability),
    }))
}
