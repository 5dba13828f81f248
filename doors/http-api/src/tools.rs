//! Tools: listed, searched, looked at.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use hivekeep_door_server::{codes, http::caller::HttpCaller};
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_registry::ToolEntry;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    decision::Judged,
    descriptor::{check_id, describe, registry_view, tool_id},
    error::ApiError,
    extract::{BodyOf, CallScope, PathOf, QueryOf, Reader, ScopeQuery},
    published::{
        AnyErrorBody, PlainErrorBody, ToolBody, ToolErrorBody, ToolPayload, ToolReason, ToolsBody,
    },
    state::Api,
};

/// Characters of a query.
const QUERY_CHARS: usize = 500;

/// A search. The best of the tools that it finds come first.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SearchRequest)]
pub(super) struct SearchBody {
    /// Words of what is to be done, or a part of a name. All tools for an empty one.
    #[schema(required = true, max_length = 500, example = "clone a repository")]
    #[serde(default)]
    query: String,
    /// Most tools to answer; all for 0 and less.
    #[serde(default)]
    limit: i64,
    workspace_id: Option<String>,
    session_id: Option<String>,
    agent_name: Option<String>,
}

impl SearchBody {
    fn scope(&self) -> ScopeQuery {
        let (workspace_id, session_id) = (self.workspace_id.clone(), self.session_id.clone());
        ScopeQuery {
            workspace_id,
            workspace: None,
            session_id,
            agent_name: self.agent_name.clone(),
        }
    }
}

impl Api {
    /// The tool of an id.
    pub(super) fn entry(&self, id: &str) -> Result<Arc<ToolEntry>, ApiError> {
        check_id(id)?;
        let catalogue = self.core.catalogue();
        catalogue.find(id).cloned().ok_or_else(|| {
            let nearest = catalogue.nearest(id, registry_view());
            let code = codes::UNKNOWN_TOOL;
            let error = ToolError::not_found(Layer::Resolve, code, "tool", id);
            ApiError::of_call(error.next("search the tools").detail("nearest", nearest), id)
        })
    }

    fn payload(
        &self,
        scope: &CallScope,
        entry: &ToolEntry,
        whole: bool,
    ) -> Result<ToolPayload, ApiError> {
        let Judged { availability, decision } = self.judge(scope, entry, whole)?;
        Ok(ToolPayload { descriptor: describe(entry), availability, decision })
    }

    /// All tools by their ids, or those that a search finds, the best first.
    fn found(&self, search: Option<&SearchBody>) -> Result<Vec<Arc<ToolEntry>>, ApiError> {
        let catalogue = self.core.catalogue();
        let mut all: Vec<_> = catalogue.visible(registry_view()).cloned().collect();
        all.sort_by_cached_key(|entry| tool_id(entry.spec));
        let Some(search) = search.filter(|search| !search.query.trim().is_empty()) else {
            return Ok(all);
        };
        if search.query.chars().count() > QUERY_CHARS {
            let why = format!("`query` has more than {QUERY_CHARS} characters");
            return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
        }
        let index = self.search.as_ref();
        let index = index.ok_or_else(|| ApiError::unavailable("this daemon has no search"))?;
        let shown: HashMap<_, _> = all.into_iter().map(|entry| (entry.name(), entry)).collect();
        let found = index.search(&search.query).into_iter();
        Ok(found.filter_map(|name| shown.get(name).cloned()).collect())
    }

    fn listed(
        &self,
        scope: &CallScope,
        search: Option<&SearchBody>,
        only: impl Fn(&ToolPayload) -> bool,
    ) -> Result<Json<ToolsBody>, ApiError> {
        let most = search.and_then(|search| usize::try_from(search.limit).ok());
        let most = most.filter(|most| *most > 0).unwrap_or(usize::MAX);
        let tools = self.found(search)?.into_iter().map(|entry| self.payload(scope, &entry, false));
        let shown = tools.filter(|tool| tool.as_ref().map_or(true, &only)).take(most);
        Ok(Json(ToolsBody { tools: shown.collect::<Result<_, _>>()? }))
    }

    fn of_session(
        &self,
        caller: &HttpCaller,
        id: &str,
        mut asked: ScopeQuery,
        search: Option<&SearchBody>,
    ) -> Result<Json<ToolsBody>, ApiError> {
        if asked.session_id.is_some_and(|body| !body.is_empty() && body != id) {
            let why = "`session_id` of the body is not the path's; leave it out";
            return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
        }
        asked.session_id = Some(id.to_owned());
        let scope = self.scope(caller, &asked)?;
        let may = |tool: &ToolPayload| tool.decision.visible_to_session && tool.decision.callable;
        self.listed(&scope, search, may)
    }
}

/// List the tools that a session may call.
#[utoipa::path(
    get, path = "/api/sessions/{id}/tools", tag = "tools", operation_id = "listSessionTools",
    params(("id" = String, Path, description = "Session"), ScopeQuery),
    responses(
        (status = 200, description = "Tools that it may call, by id.", body = ToolsBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn of_session(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
    QueryOf(asked): QueryOf<ScopeQuery>,
) -> Result<Json<ToolsBody>, ApiError> {
    api.of_session(&caller, &id, asked, None)
}

/// Search the tools that a session may call.
#[utoipa::path(
    post, path = "/api/sessions/{id}/tools/search", tag = "tools",
    operation_id = "searchSessionTools", request_body = SearchBody,
    params(("id" = String, Path, description = "Session")),
    responses(
        (status = 200, description = "Tools that it may call, the best first.", body = ToolsBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn search_of_session(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
    BodyOf(search): BodyOf<SearchBody>,
) -> Result<Json<ToolsBody>, ApiError> {
    api.of_session(&caller, &id, search.scope(), Some(&search))
}

/// List all tools, those that are denied with the reasons.
#[utoipa::path(
    get, path = "/api/tools", tag = "tools", operation_id = "listTools", params(ScopeQuery),
    responses(
        (status = 200, description = "All tools, by id.", body = ToolsBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(asked): QueryOf<ScopeQuery>,
) -> Result<Json<ToolsBody>, ApiError> {
    let scope = api.scope(&caller, &asked)?;
    api.listed(&scope, None, |_| true)
}

/// Search all tools, those that are denied with the reasons.
#[utoipa::path(
    post, path = "/api/tools/search", tag = "tools", operation_id = "searchTools",
    params(ScopeQuery), request_body = SearchBody,
    responses(
        (status = 200, description = "Tools, the best first.", body = ToolsBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn search(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(asked): QueryOf<ScopeQuery>,
    BodyOf(search): BodyOf<SearchBody>,
) -> Result<Json<ToolsBody>, ApiError> {
    let scope = api.scope(&caller, &search.scope().or(asked))?;
    api.listed(&scope, Some(&search), |_| true)
}

/// Look at one tool, with the verdicts of all layers of the decision.
#[utoipa::path(
    get, path = "/api/tools/{id}", tag = "tools", operation_id = "getTool",
    params((
            "id" = String, Path, description = "Tool id", example = "workspace_list",
            max_length = 64, pattern = "^[a-z][a-z0-9_]*$",
        ), ScopeQuery),
    responses(
        (status = 200, description = "The tool.", body = ToolBody),
        (status = 400, description = "The id is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such tool, or session of the caller.", body = AnyErrorBody),
    ),
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
    QueryOf(asked): QueryOf<ScopeQuery>,
) -> Result<Json<ToolBody>, ApiError> {
    let entry = api.entry(&id)?;
    let scope = api.scope(&caller, &asked)?;
    Ok(Json(ToolBody { tool: api.payload(&scope, &entry, true)? }))
}
