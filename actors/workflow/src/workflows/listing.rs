//! Tools that list, export and delete workflows.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ToolError, User, WorkflowId, tools};
use hivekeep_manifest_registry::{ManifestEntry, ManifestLabels, check_tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, DeployedWorkflow, INITIAL_STATE};
use crate::service::WorkflowService;

/// List the workflows that you can use, each in its latest version: your own, and those that operators keep for
/// everybody. To find one for a task use aegis.workflow.search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowList {
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
    /// Scope of the workflows. Default: all that you can use.
    scope: Option<ListedScope>,
    /// Owner of the workflows, as `owner` names it; operators may name any user.
    user_id: Option<String>,
}

/// Scope of workflows that are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ListedScope {
    /// All scopes.
    Visible,
    /// Users' own.
    User,
    /// Everybody's of this daemon.
    Tenant,
    /// Everybody's: shipped with the daemon, or promoted.
    Global,
}

/// Workflows that a caller can use.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowsListed {
    /// Sorted by name, the nearest scope first.
    workflows: Vec<WorkflowRow>,
}

/// A workflow in its latest version.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WorkflowRow {
    /// Id.
    id: WorkflowId,
    /// Name.
    name: String,
    /// Version.
    version: String,
    /// Name of the state that it begins in.
    initial_state: String,
    /// Purpose of the workflow.
    description: Option<String>,
    /// Labels.
    labels: ManifestLabels,
    /// Scope: `user`, `tenant` for everybody of this daemon, or `global` for what comes with it or was promoted.
    scope: &'static str,
    /// User of a user's workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<User>,
}

impl WorkflowRow {
    pub(super) fn new(id: WorkflowId, entry: &ManifestEntry<DeployedWorkflow>) -> Self {
        let latest = entry.latest();
        Self {
            id,
            name: entry.name.clone(),
            version: latest.version.to_string(),
            initial_state: latest.facts.get(INITIAL_STATE).cloned().unwrap_or_default(),
            description: latest.description.clone(),
            labels: latest.labels.clone(),
            scope: entry.scope.name(),
            owner: entry.scope.owner(),
        }
    }
}

/// Read a workflow's manifest as it was deployed, byte for byte. aegis.workflow.create takes it again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowExport {
    /// Name or id. Your own workflow of a name comes before one that is everybody's.
    name: String,
    /// Version, as `1.2.3`. Default: the latest.
    version: Option<String>,
}

/// Manifest of a workflow.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowExported {
    /// The text as it came.
    manifest_yaml: String,
    /// Id of the workflow.
    id: WorkflowId,
    /// Name.
    name: String,
    /// Version of the manifest.
    version: String,
}

/// Delete a workflow with all its versions, for good. Its runs go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowDelete {
    /// Name or id. Your own workflow of a name comes before one that is everybody's.
    name: String,
}

/// Workflow that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowDeleted {
    /// Its id.
    workflow_id: WorkflowId,
    /// True.
    deleted: bool,
}

tools! { pub(crate) LISTING_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_list: WorkflowList => WorkflowsListed = WorkflowService::list {
        name: "aegis.workflow.list", title: "List workflows", effect: Read,
    };
    workflow_export: WorkflowExport => WorkflowExported = WorkflowService::export {
        name: "aegis.workflow.export", title: "Read a workflow's manifest", effect: Read,
    };
    workflow_delete: WorkflowDelete => WorkflowDeleted = WorkflowService::delete {
        name: "aegis.workflow.delete", title: "Delete a workflow", effect: Destroy,
        tier: Tier::Operator,
    };
}

impl WorkflowService {
    async fn list(self: Arc<Self>, cx: CallCx, input: WorkflowList) -> Answer<WorkflowsListed> {
        check_tenant(input.tenant_id.as_deref())?;
        let caller = self.caller(&cx)?;
        let owner = input.user_id.map(|user| user.parse::<User>()).transpose();
        let owner = owner.map_err(ToolError::invalid)?;
        if owner.is_some_and(|owner| !caller.operator && owner != caller.user) {
            let message = "operators alone list workflows of others: leave `user_id` out";
            return Err(ToolError::invalid(message));
        }
        let name = match input.scope {
            None | Some(ListedScope::Visible) => None,
            Some(ListedScope::User) => Some("user"),
            Some(ListedScope::Tenant) => Some("tenant"),
            Some(ListedScope::Global) => Some("global"),
        };
        let wanted = |(_, entry): &(WorkflowId, ManifestEntry<DeployedWorkflow>)| {
            name.is_none_or(|name| entry.scope.name() == name)
                && owner.is_none_or(|owner| entry.scope.owner() == Some(owner))
        };
        let seen = self.workflows.list(caller).into_iter().filter(wanted);
        let workflows = seen.map(|(id, entry)| WorkflowRow::new(id, &entry)).collect();
        Ok(WorkflowsListed { workflows })
    }

    async fn export(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowExport,
    ) -> Answer<WorkflowExported> {
        let asked = input.version.as_deref();
        let (id, entry, kept) = self.workflows.find(self.caller(&cx)?, &input.name, asked)?;
        Ok(WorkflowExported {
            manifest_yaml: kept.text.clone(),
            id,
            name: entry.name,
            version: kept.version.to_string(),
        })
    }

    async fn delete(self: Arc<Self>, cx: CallCx, input: WorkflowDelete) -> Answer<WorkflowDeleted> {
        let caller = self.caller(&cx)?;
        let (id, ..) = self.workflows.find(caller, &input.name, None)?;
        let workflow_id = self.workflows.delete(caller, &id.to_string()).await?;
        Ok(WorkflowDeleted { workflow_id, deleted: true })
    }
}
