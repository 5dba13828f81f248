//! Workflows: their manifests as the registry keeps them, and the tools of workflows and of their runs.

mod agents;
mod deploy;
mod intent;
mod judges;
mod library;
mod listing;
mod logs;
mod run;
mod scopes;
mod search;
mod status;

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ErrorCode, ToolError, WorkflowId};
use hivekeep_manifest::{
    parse_workflow,
    workflow::{WorkflowManifest, WorkflowState},
};
use hivekeep_manifest_registry::{
    KeptManifest, ManifestLabels, ManifestRegistry, RegisteredManifest, RegistryCaller,
    manifest_invalid,
};

pub(crate) use self::{
    deploy::DEPLOY_FAMILY,
    intent::INTENT_FAMILY,
    listing::LISTING_FAMILY,
    logs::LOG_FAMILY,
    run::RUN_FAMILY,
    scopes::SCOPE_FAMILY,
    search::SEARCH_FAMILY,
    status::{STATUS_FAMILY, WAIT_FAMILY},
};
use crate::{codes, service::WorkflowService};

/// Version of a manifest that names none.
const FIRST_VERSION: &str = "1.0.0";
/// Fact of a manifest: the state that it begins in.
const INITIAL_STATE: &str = "initial_state";

/// Manifests that are shipped with the daemon, each with the id that it always has.
const SHIPPED: [(&str, &str); 2] = [
    (intent::WORKFLOW, include_str!("../builtin/intent-to-execution.yaml")),
    (run::GENERATOR, include_str!("../builtin/workflow-generator.yaml")),
];

type Answer<T> = Result<T, ToolError>;

/// Manifest of a workflow, for the registry.
#[derive(Debug, Clone)]
pub(crate) struct DeployedWorkflow(pub(crate) WorkflowManifest);

impl RegisteredManifest for DeployedWorkflow {
    type Id = WorkflowId;

    const KIND: &'static str = "workflow";
    const HELD: &'static str = "workflows";
    const NOT_FOUND: &'static ErrorCode = codes::WORKFLOW_NOT_FOUND;
    const LISTED_BY: &'static str = "aegis.workflow.list";

    fn new_id() -> WorkflowId {
        WorkflowId::new()
    }

    fn name(&self) -> &str {
        &self.0.metadata.name
    }

    fn version(&self) -> &str {
        self.0.metadata.version.as_deref().unwrap_or(FIRST_VERSION)
    }

    fn description(&self) -> Option<&str> {
        self.0.metadata.description.as_deref()
    }

    fn labels(&self) -> ManifestLabels {
        self.0.metadata.labels.clone().unwrap_or_default()
    }

    /// Names of its states, and of the agents and workflows in them.
    fn words(&self) -> String {
        let spec = &self.0.spec;
        let states = spec.states.keys().map(String::as_str);
        let agents = spec.agents().into_iter().map(|(_, agent)| agent);
        let workflows = spec.states.values().filter_map(|state| match state {
            WorkflowState::Subworkflow { workflow_id, .. } => Some(workflow_id.as_str()),
            _ => None,
        });
        states.chain(agents).chain(workflows).collect::<Vec<_>>().join(" ")
    }

    fn facts(&self) -> ManifestLabels {
        let initial = self.0.spec.initial_state.clone();
        ManifestLabels::from([(INITIAL_STATE.to_owned(), initial)])
    }
}

/// Adds the workflows that are shipped with the daemon.
///
/// # Errors
/// `manifest_invalid`, `internal`: a defect of what is shipped.
pub(crate) fn ship(registry: &mut ManifestRegistry<DeployedWorkflow>) -> Answer<()> {
    for (id, text) in SHIPPED {
        let id = id.parse().map_err(|error| ToolError::internal(format!("{error}")))?;
        let manifest = parse_workflow(text).map_err(|problems| manifest_invalid(&problems))?;
        registry.ship(id, &DeployedWorkflow(manifest), text)?;
    }
    Ok(())
}

/// A version of a workflow that a caller sees, the latest unless one is asked for.
///
/// # Errors
/// `workflow_not_found`, `manifest_version_not_found`.
pub(crate) async fn find(
    registry: &ManifestRegistry<DeployedWorkflow>,
    caller: RegistryCaller,
    id_or_name: &str,
    version: Option<&str>,
) -> Answer<(WorkflowId, WorkflowManifest)> {
    let (id, _, kept) = registry.find(caller, id_or_name, version)?;
    Ok((id, blocking(move || parsed(&kept)).await??))
}

/// Manifest of a version, with the version that it is.
fn parsed(kept: &KeptManifest) -> Answer<WorkflowManifest> {
    let parsed = parse_workflow(&kept.text);
    let mut manifest = parsed.map_err(|problems| manifest_invalid(&problems))?;
    manifest.metadata.version = Some(kept.version.to_string());
    Ok(manifest)
}

/// Does work that is not quick beside the calls.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| ToolError::internal(panic.to_string()))
}

impl WorkflowService {
    fn caller(&self, cx: &CallCx) -> Answer<RegistryCaller> {
        RegistryCaller::of(cx, &*self.sessions)
    }

    /// Workflow that the caller of a call sees.
    async fn workflow(
        self: &Arc<Self>,
        cx: &CallCx,
        id_or_name: &str,
        version: Option<&str>,
    ) -> Answer<(WorkflowId, WorkflowManifest)> {
        find(&self.workflows, self.caller(cx)?, id_or_name, version).await
    }
}
