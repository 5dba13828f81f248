//! Tools that move workflows between scopes. The caller's credential says whether it may, and no argument does.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ToolError, User, WorkflowId, tools};
use hivekeep_manifest_registry::{ManifestScope, ScopeMove, check_tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::service::WorkflowService;

/// Move a workflow, with all its versions, to a scope of more callers; for operators. To keep it where it is, too,
/// export it and deploy it there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowPromote {
    /// Id or name. In several scopes of a name the one next to the target is meant.
    name: String,
    /// Scope that it is moved to: `tenant` for everybody of this daemon, or `global` beside what comes with it.
    #[serde(default = "global")]
    target_scope: PromotedScope,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

/// Scope of a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum PromotedScope {
    /// Everybody's of this daemon.
    Tenant,
    /// Everybody's.
    Global,
}

fn global() -> PromotedScope {
    PromotedScope::Global
}

/// Workflow that was promoted.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowPromoted {
    /// Its id, which stays.
    workflow_id: WorkflowId,
    /// Name.
    name: String,
    /// True.
    promoted: bool,
    /// Scope that it is in.
    target_scope: &'static str,
}

/// Move a workflow, with all its versions, to a scope of fewer callers; for operators.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowDemote {
    /// Id or name. In several scopes of a name the one next to the target is meant.
    name: String,
    /// Scope that it is moved to: `tenant` for everybody of this daemon, or `user`.
    #[serde(default = "tenant")]
    target_scope: DemotedScope,
    /// User whose it becomes, for the scope `user`. Default: yours.
    user_id: Option<String>,
    /// Tenant. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
}

/// Scope of a demotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum DemotedScope {
    /// Everybody's of this daemon.
    Tenant,
    /// A single user's.
    User,
}

fn tenant() -> DemotedScope {
    DemotedScope::Tenant
}

/// Workflow that was demoted.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowDemoted {
    /// Its id, which stays.
    workflow_id: WorkflowId,
    /// Name.
    name: String,
    /// True.
    demoted: bool,
    /// Scope that it is in.
    target_scope: &'static str,
}

tools! { pub(crate) SCOPE_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_promote: WorkflowPromote => WorkflowPromoted = WorkflowService::promote {
        name: "aegis.workflow.promote", title: "Give a workflow to more callers",
        tier: Tier::System, risk: Risk::Medium,
    };
    workflow_demote: WorkflowDemote => WorkflowDemoted = WorkflowService::demote {
        name: "aegis.workflow.demote", title: "Give a workflow to fewer callers",
        tier: Tier::System, risk: Risk::Medium,
    };
}

impl WorkflowService {
    async fn promote(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowPromote,
    ) -> Answer<WorkflowPromoted> {
        check_tenant(input.tenant_id.as_deref())?;
        let target = match input.target_scope {
            PromotedScope::Tenant => ManifestScope::Tenant,
            PromotedScope::Global => ManifestScope::Global,
        };
        let (caller, way) = (self.caller(&cx)?, ScopeMove::Promote);
        let (workflow_id, name) = self.workflows.relocate(caller, &input.name, way, target).await?;
        let target_scope = target.name();
        Ok(WorkflowPromoted { workflow_id, name, promoted: true, target_scope })
    }

    async fn demote(self: Arc<Self>, cx: CallCx, input: WorkflowDemote) -> Answer<WorkflowDemoted> {
        check_tenant(input.tenant_id.as_deref())?;
        let caller = self.caller(&cx)?;
        let user = input.user_id.map(|user| user.parse::<User>()).transpose();
        let user = user.map_err(ToolError::invalid)?;
        let target = match (input.target_scope, user) {
            (DemotedScope::Tenant, None) => ManifestScope::Tenant,
            (DemotedScope::Tenant, Some(_)) => {
                let message =
                    "`user_id` says nothing about the scope tenant: leave one of them out";
                return Err(ToolError::invalid(message));
            }
            (DemotedScope::User, user) => ManifestScope::User(user.unwrap_or(caller.user)),
        };
        let way = ScopeMove::Demote;
        let (workflow_id, name) = self.workflows.relocate(caller, &input.name, way, target).await?;
        let target_scope = target.name();
        Ok(WorkflowDemoted { workflow_id, name, demoted: true, target_scope })
    }
}
