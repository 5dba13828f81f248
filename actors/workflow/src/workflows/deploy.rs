//! Tools that deploy workflows: a manifest is checked, and judged by agents where that is asked for.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, WorkflowId, tools};
use hivekeep_manifest::{MAX_TEXT_BYTES, read_workflow, workflow::WorkflowManifest};
use hivekeep_manifest_registry::{DeployRequest, manifest_invalid};
use hivekeep_ports::ManifestProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, DeployedWorkflow, blocking,
    judges::{MOST_JUDGES, ManifestJudgment, ManifestPanel},
};
use crate::service::WorkflowService;

/// Deploy a workflow from its manifest, or a further version of one. A version never changes: give the next one
/// another number. An operator's workflows are everybody's, others are their user's own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowCreate {
    /// The whole manifest, at most 256 KiB of YAML (`read_schema` of `workflow/manifest/v1` shows its keys).
    #[schemars(length(max = MAX_TEXT_BYTES))]
    manifest_yaml: String,
    /// Replace this version, if it is there.
    #[serde(default)]
    force: bool,
    /// Task that the workflow is for, for its judges. They are asked where this, `judge_agents`, `min_score` or
    /// `min_confidence` is given.
    #[schemars(length(max = 65_536))]
    task_context: Option<String>,
    /// Agents that judge the manifest before it is deployed, by id or name. Default: `manifest-judge`.
    #[schemars(length(min = 1, max = MOST_JUDGES))]
    judge_agents: Option<Vec<String>>,
    /// Least score of its judges, 0 to 1. Default: 0.8.
    #[schemars(range(min = 0.0, max = 1.0))]
    min_score: Option<f64>,
    /// Least confidence of its judges, 0 to 1. Default: 0.7.
    #[schemars(range(min = 0.0, max = 1.0))]
    min_confidence: Option<f64>,
}

/// Deploy a further version of a workflow that is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowUpdate {
    /// The whole manifest, at most 256 KiB of YAML, by the name of the workflow.
    #[schemars(length(max = MAX_TEXT_BYTES))]
    manifest_yaml: String,
    /// Replace this version, if it is there.
    #[serde(default)]
    force: bool,
}

/// Workflow that was deployed.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowDeployed {
    /// Id of the workflow, the same for all its versions.
    workflow_id: WorkflowId,
    /// True.
    deployed: bool,
    /// Name.
    name: String,
    /// Version that was deployed.
    version: String,
    /// `passed`, or `skipped` where no judge was asked.
    semantic_validation: &'static str,
    /// Reason why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Judgment of its judges.
    #[serde(skip_serializing_if = "Option::is_none")]
    judgment: Option<ManifestJudgment>,
}

/// Check a workflow's manifest as a deployment would, and deploy nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowValidate {
    /// The whole manifest, at most 256 KiB of YAML.
    #[schemars(length(max = MAX_TEXT_BYTES))]
    manifest_yaml: String,
}

/// Outcome of a check.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowValidated {
    /// True if nothing is wrong.
    valid: bool,
    /// Problems in the order of the text; none of a valid manifest.
    errors: Vec<ManifestProblem>,
}

tools! { pub(crate) DEPLOY_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_create: WorkflowCreate => WorkflowDeployed = WorkflowService::create {
        name: "aegis.workflow.create", title: "Deploy a workflow", tier: Tier::System,
        timeout_secs: 120,
    };
    workflow_validate: WorkflowValidate => WorkflowValidated = WorkflowService::validate {
        name: "aegis.workflow.validate", title: "Check a workflow's manifest", effect: Read,
    };
    workflow_update: WorkflowUpdate => WorkflowDeployed = WorkflowService::update {
        name: "aegis.workflow.update", title: "Deploy a version of a workflow", tier: Tier::System,
    };
}

impl WorkflowService {
    async fn create(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowCreate,
    ) -> Answer<WorkflowDeployed> {
        let panel = ManifestPanel {
            task: input.task_context,
            agents: input.judge_agents,
            min_score: input.min_score,
            min_confidence: input.min_confidence,
        };
        let skipped = "no judge was asked for: name some in `judge_agents`";
        let (text, force) = (input.manifest_yaml, input.force);
        let manifest = self.read(&cx, &text).await?.map_err(|found| manifest_invalid(&found))?;
        let judgment = self.judged(&cx, &text, panel).await?;
        let deployed = self.deploy(&cx, text, manifest, (false, force)).await?;
        Ok(match judgment {
            None => WorkflowDeployed { reason: Some(skipped), ..deployed },
            judgment => WorkflowDeployed { semantic_validation: "passed", judgment, ..deployed },
        })
    }

    async fn update(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowUpdate,
    ) -> Answer<WorkflowDeployed> {
        let WorkflowUpdate { manifest_yaml: text, force } = input;
        let manifest = self.read(&cx, &text).await?.map_err(|found| manifest_invalid(&found))?;
        let deployed = self.deploy(&cx, text, manifest, (true, force)).await?;
        Ok(WorkflowDeployed { reason: Some("an update asks no judges"), ..deployed })
    }

    async fn validate(
        self: Arc<Self>,
        cx: CallCx,
        input: WorkflowValidate,
    ) -> Answer<WorkflowValidated> {
        let errors = self.read(&cx, &input.manifest_yaml).await?.err().unwrap_or_default();
        Ok(WorkflowValidated { valid: errors.is_empty(), errors })
    }

    async fn deploy(
        &self,
        cx: &CallCx,
        text: String,
        manifest: WorkflowManifest,
        (update, force): (bool, bool),
    ) -> Answer<WorkflowDeployed> {
        let (name, manifest) = (manifest.metadata.name.clone(), DeployedWorkflow(manifest));
        let request = DeployRequest { manifest, text, update, force };
        let (workflow_id, version) = self.workflows.deploy(self.caller(cx)?, request).await?;
        Ok(WorkflowDeployed {
            workflow_id,
            deployed: true,
            name,
            version: version.to_string(),
            semantic_validation: "skipped",
            reason: None,
            judgment: None,
        })
    }

    /// Manifest of a text, whose agents are there for the caller; or what is wrong with it.
    async fn read(
        &self,
        cx: &CallCx,
        text: &str,
    ) -> Answer<Result<WorkflowManifest, Vec<ManifestProblem>>> {
        let text: Arc<str> = text.into();
        let again = text.clone();
        let manifest = match blocking(move || read_workflow(&text, None)).await? {
            Ok(manifest) if !manifest.spec.agents().is_empty() => manifest,
            other => return Ok(other),
        };
        let known = self.agents_of(cx).await?;
        let all_there = manifest.spec.agents().iter().all(|(_, agent)| known.contains(*agent));
        if all_there {
            return Ok(Ok(manifest));
        }
        blocking(move || {
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            read_workflow(&again, Some(&known))
        })
        .await
    }
}
