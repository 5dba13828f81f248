//! Toolsets: families of tools.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Api,
    descriptor::{check_id, registry_view, tool_id, toolset_id},
    error::ApiError,
    extract::{PathOf, Reader},
    published::{AnyErrorBody, ToolErrorBody},
};

/// A toolset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Toolset)]
pub(super) struct ToolsetPayload {
    /// Id.
    #[schema(example = "file_operations")]
    id: String,
    /// Name of the family. An addition.
    name: String,
    /// Tools and patterns that it was made of.
    tools: Vec<String>,
    /// Toolsets in it.
    toolsets: Vec<String>,
    /// Ids of all its tools.
    expanded_tools: Vec<String>,
    /// `expanded`, or `degraded` where a part of it is none.
    status: String,
    /// Why it is degraded.
    reason_codes: Vec<super::published::ToolReason>,
}

/// Toolsets, by id.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolsetList)]
pub(super) struct ToolsetsBody {
    toolsets: Vec<ToolsetPayload>,
}

/// One toolset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolsetResponse)]
pub(super) struct ToolsetBody {
    toolset: ToolsetPayload,
}

impl Api {
    fn toolsets(&self) -> Vec<ToolsetPayload> {
        let (catalogue, view) = (&self.core.catalogue, registry_view());
        let of = |family: &'static str| {
            let ours = catalogue.visible(view).filter(|entry| entry.info.spec.family == family);
            let mut tools: Vec<_> = ours.map(|entry| tool_id(&entry.info.spec)).collect();
            tools.sort();
            ToolsetPayload {
                id: toolset_id(family),
                name: family.to_owned(),
                tools: tools.clone(),
                toolsets: Vec::new(),
                expanded_tools: tools,
                status: "expanded".to_owned(),
                reason_codes: Vec::new(),
            }
        };
        let mut toolsets: Vec<_> = catalogue.families().into_iter().map(of).collect();
        toolsets.sort_by(|a, b| a.id.cmp(&b.id));
        toolsets
    }
}

/// List the toolsets.
#[utoipa::path(
    get, path = "/api/toolsets", tag = "hivekeep", operation_id = "listToolsets",
    responses((status = 200, description = "Toolsets, by id.", body = ToolsetsBody)),
)]
pub(super) async fn list(State(api): State<Arc<Api>>, _: Reader) -> Json<ToolsetsBody> {
    Json(ToolsetsBody { toolsets: api.toolsets() })
}

/// Look at one toolset.
#[utoipa::path(
    get, path = "/api/toolsets/{id}", tag = "hivekeep", operation_id = "getToolset",
    params(("id" = String, Path, description = "Toolset id", example = "file_operations")),
    responses(
        (status = 200, description = "The toolset.", body = ToolsetBody),
        (status = 400, description = "The id is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such toolset.", body = AnyErrorBody),
    ),
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    _: Reader,
    PathOf(id): PathOf,
) -> Result<Json<ToolsetBody>, ApiError> {
    check_id(&id)?;
    let found = api.toolsets().into_iter().find(|toolset| toolset.id == id);
    match found {
        Some(toolset) => Ok(Json(ToolsetBody { toolset })),
        None => Err(ApiError::not_there("toolset", &id)),
    }
}
