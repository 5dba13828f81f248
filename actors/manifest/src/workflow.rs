//! Workflow manifest (`workflow/manifest/v1`) as plain data: a state machine over a blackboard. Rules say
//! what its schema cannot: each state is reached, and each cycle has a way out.

mod rules;
mod state;
mod texts;
mod transition;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    agent::StorageClass,
    common::{ApiVersion, JsonObject, Labels},
};

pub(crate) use rules::{check, check_registration};
pub(crate) use texts::check_agents;

pub use state::{
    ConfidenceWeighting, ContainerStep, ContainerUser, ContainerVolume, NodeCompletion, PanelJudge,
    ParallelAgent, ParallelConsensus, SubworkflowMode, WorkflowState,
};
pub use texts::{
    OUTPUT_NAMES, RESERVED_KEYS, RUN_NAMES, UPDATE_BLACKBOARD, WORKSPACE_KEY, expression_text,
};
pub use transition::{Transition, TransitionCondition, TransitionValue};

/// Workflow: states, the transitions between them, and what they share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowManifest {
    /// Version of the envelope: `100monkeys.ai/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: ApiVersion,
    /// Kind of the manifest.
    pub kind: WorkflowKind,
    /// Name, version and labels.
    pub metadata: WorkflowMetadata,
    /// States of the workflow, with the transitions between them.
    pub spec: WorkflowSpec,
}

/// Kind of a workflow's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowKind {
    /// A workflow.
    Workflow,
}

/// Name, version and shape of the results of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowMetadata {
    /// Name: `a-z`, `0-9` and inner `-`, at most 63.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// Version, as `1.2.3`. Default: `1.0.0`.
    #[schemars(regex(pattern = r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$"))]
    pub version: Option<String>,
    /// Purpose of the workflow, for people.
    pub description: Option<String>,
    /// Labels to find the workflow by.
    pub labels: Option<Labels>,
    /// Notes of other programs.
    pub annotations: Option<Labels>,
    /// JSON Schema of the workflow's input.
    pub input_schema: Option<JsonObject>,
    /// JSON Schema of the workflow's final output.
    pub output_schema: Option<JsonObject>,
    /// Template of the workflow's final output.
    pub output_template: Option<JsonObject>,
}

/// States of a workflow, with their transitions, storage and bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSpec {
    /// Name of the state that the workflow begins in.
    pub initial_state: String,
    /// Values of the blackboard at the beginning, by key.
    pub context: Option<JsonObject>,
    /// States by name.
    #[schemars(length(min = 1))]
    pub states: BTreeMap<String, WorkflowState>,
    /// Storage of the states.
    pub storage: Option<WorkflowStorage>,
    /// Most transitions of one run, which ends every cycle. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub max_total_transitions: Option<u64>,
}

/// Storage of a workflow's states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowStorage {
    /// Workspace that the states share.
    pub workspace: Option<WorkflowWorkspace>,
    /// Further volumes.
    pub shared_volumes: Option<Vec<SharedVolume>>,
}

/// Workspace that states share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowWorkspace {
    /// Life.
    pub storage_class: Option<StorageClass>,
    /// Hours that an ephemeral one lives. Default: 1.
    #[schemars(range(min = 1))]
    pub ttl_hours: Option<u64>,
    /// Largest size in MB. Default: 256.
    #[schemars(range(min = 1))]
    pub size_limit_mb: Option<u64>,
    /// Id of a volume that is there.
    pub volume_id: Option<String>,
    /// Key of the blackboard that its id is written to. Default: `workspace_volume_id`.
    pub blackboard_key: Option<String>,
}

/// Volume that states share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedVolume {
    /// Name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Life.
    pub storage_class: Option<StorageClass>,
    /// Largest size.
    #[schemars(range(min = 1))]
    pub size_limit_bytes: Option<u64>,
}

impl WorkflowSpec {
    /// Most transitions of one run.
    pub fn max_total_transitions(&self) -> u64 {
        self.max_total_transitions.unwrap_or(50)
    }
}
