//! Toolsets: families of tools, and those of the operator's configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State};
use hivekeep_kernel::view::same_family;
use hivekeep_policy::ToolsetOptions;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    descriptor::{check_id, registry_view, tool_id, toolset_id},
    error::ApiError,
    extract::{PathOf, Reader},
    published::{AnyErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};

/// Toolsets of the configuration, by their names.
type Configured = BTreeMap<String, ToolsetOptions>;

/// A toolset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Toolset)]
pub(super) struct ToolsetPayload {
    /// Id.
    #[schema(example = "file_operations")]
    id: String,
    /// Name of the family, or in the configuration. An addition.
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
    reason_codes: Vec<ToolReason>,
}

/// Toolsets, by id.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolsetList)]
pub(super) struct ToolsetsBody {
    toolsets: Vec<ToolsetPayload>,
}

/// Response with a toolset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolsetResponse)]
pub(super) struct ToolsetBody {
    toolset: ToolsetPayload,
}

impl Api {
    fn toolsets(&self) -> Vec<ToolsetPayload> {
        let own = &self.core.dispatcher.policy().options().toolsets;
        let mut toolsets: Vec<_> = own.keys().map(|name| self.configured(own, name)).collect();
        toolsets.extend(self.core.catalogue().families().into_iter().map(|name| self.family(name)));
        // A toolset of the operator's goes before a family of its name, as it does in the policy.
        toolsets.sort_by(|a, b| a.id.cmp(&b.id));
        toolsets.dedup_by(|later, first| later.id == first.id);
        toolsets
    }

    fn family(&self, family: &str) -> ToolsetPayload {
        let tools: Vec<_> = self.members(family).into_iter().collect();
        ToolsetPayload {
            id: toolset_id(family),
            name: family.to_owned(),
            tools: tools.clone(),
            toolsets: Vec::new(),
            expanded_tools: tools,
            status: "expanded".to_owned(),
            reason_codes: Vec::new(),
        }
    }

    /// Ids of the tools of a family.
    fn members(&self, family: &str) -> BTreeSet<String> {
        let catalogue = self.core.catalogue();
        let all = catalogue.visible(registry_view());
        let ours = all.filter(|entry| same_family(entry.spec.family, family));
        ours.map(|entry| tool_id(entry.spec)).collect()
    }

    /// A toolset of the operator's configuration.
    fn configured(&self, own: &Configured, name: &str) -> ToolsetPayload {
        let (mut tools, mut reasons) = (BTreeSet::new(), Vec::new());
        self.expand(own, name, &mut Vec::new(), &mut tools, &mut reasons);
        let set = &own[name];
        ToolsetPayload {
            id: toolset_id(name),
            name: name.to_owned(),
            tools: set.tools.iter().map(ToString::to_string).collect(),
            toolsets: set.toolsets.iter().map(|name| toolset_id(name)).collect(),
            expanded_tools: tools.into_iter().collect(),
            status: if reasons.is_empty() { "expanded" } else { "degraded" }.to_owned(),
            reason_codes: reasons,
        }
    }

    fn expand<'n>(
        &self,
        own: &'n Configured,
        name: &'n str,
        path: &mut Vec<&'n str>,
        tools: &mut BTreeSet<String>,
        reasons: &mut Vec<ToolReason>,
    ) {
        let mut degraded = |reason| {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        };
        let Some(set) = own.get(name) else {
            let family = self.members(name);
            if family.is_empty() {
                degraded(ToolReason::ToolsetUnknown);
            }
            return tools.extend(family);
        };
        if path.contains(&name) {
            return degraded(ToolReason::ToolsetCycle);
        }
        for pattern in &set.tools {
            let catalogue = self.core.catalogue();
            let all = catalogue.visible(registry_view());
            let found = all.filter(|entry| pattern.matches(entry.name()));
            let found: Vec<_> = found.map(|entry| tool_id(entry.spec)).collect();
            if found.is_empty() {
                degraded(ToolReason::ToolUnknown);
            }
            tools.extend(found);
        }
        path.push(name);
        for below in &set.toolsets {
            self.expand(own, below, path, tools, reasons);
        }
        path.pop();
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
