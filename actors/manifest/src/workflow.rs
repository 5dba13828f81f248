//! Workflow manifest (`workflow/manifest/v1`) as plain data: a state machine over a blackboard. Rules say
//! what its schema cannot: each state is reached, and each cycle has a way out.

mod state;
mod transition;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    agent::StorageClass,
    common::{ApiVersion, JsonObject, Labels, check_json_schema, check_unique},
    problems::{ManifestPath, ProblemList, at, not_there},
};

pub use state::{
    ConfidenceWeighting, ContainerStep, ContainerUser, ContainerVolume, NodeCompletion, PanelJudge,
    ParallelAgent, ParallelConsensus, SubworkflowMode, WorkflowState,
};
pub use transition::{Transition, TransitionCondition, TransitionValue};

/// Sum of shares is 1 within this.
const SHARE_SLACK: f64 = 0.01;

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

/// Checks a workflow.
pub(crate) fn check(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    let (spec, metadata) = (&workflow.spec, &workflow.metadata);
    for (key, schema) in
        [("input_schema", &metadata.input_schema), ("output_schema", &metadata.output_schema)]
    {
        if let Some(schema) = schema {
            check_json_schema(schema, &at!["metadata", key], problems);
        }
    }
    let shared = spec.storage.as_ref().and_then(|storage| storage.shared_volumes.as_deref());
    let shared = shared.unwrap_or_default();
    let volumes = at!["spec", "storage", "shared_volumes"];
    check_unique(shared.iter().map(|volume| &volume.name), &volumes, problems);
    let names: Vec<_> = spec.states.keys().map(String::as_str).collect();
    if !spec.states.contains_key(&spec.initial_state) {
        let message = not_there("state", &spec.initial_state, &names);
        problems.add(&at!["spec", "initial_state"], message);
    }
    let shared: Vec<_> = shared.iter().map(|volume| volume.name.as_str()).collect();
    for (name, state) in &spec.states {
        let at = at!["spec", "states", name];
        for (index, transition) in state.transitions().iter().enumerate() {
            let at = at.join("transitions").join(index);
            transition::check(transition, &at, &names, problems);
        }
        check_state(state, &at, &shared, problems);
    }
    if problems.is_empty() {
        check_flow(&spec.initial_state, &spec.states, problems);
    }
}

fn check_state(
    state: &WorkflowState,
    at: &ManifestPath,
    shared: &[&str],
    problems: &mut ProblemList<'_>,
) {
    match state {
        WorkflowState::Subworkflow { mode, result_key, .. } => {
            let blocking = *mode != Some(SubworkflowMode::FireAndForget);
            match (blocking, result_key) {
                (true, None) => {
                    problems.add(at, "the key `result_key` is missing: its end is waited for")
                }
                (false, Some(_)) => {
                    problems.add_key(
                        &at.join("result_key"),
                        "there is no result: its end is not waited for",
                    );
                }
                _ => {}
            }
        }
        WorkflowState::ParallelAgents { consensus, agents, .. } => {
            check_consensus(consensus, agents.len(), &at.join("consensus"), problems);
        }
        WorkflowState::ContainerRun { volumes, .. } => {
            check_volumes(volumes.iter().flatten(), at, shared, problems);
        }
        WorkflowState::ParallelContainerRun { steps, .. } => {
            check_unique(steps.iter().map(|step| &step.name), &at.join("steps"), problems);
            for (index, step) in steps.iter().enumerate() {
                let at = at.join("steps").join(index);
                check_volumes(step.volumes.iter().flatten(), &at, shared, problems);
            }
        }
        _ => {}
    }
}

fn check_consensus(
    consensus: &ParallelConsensus,
    agents: usize,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if let Some(weighting) = &consensus.confidence_weighting {
        let sum = weighting.agreement_factor.0 + weighting.self_confidence_factor.0;
        if (sum - 1.0).abs() > SHARE_SLACK {
            problems.add(
                &at.join("confidence_weighting"),
                format!("the shares add up to {sum}, not to 1"),
            );
        }
    }
    if let Some(n) = consensus.n.filter(|n| *n > agents as u64) {
        problems.add(&at.join("n"), format!("{n} of {agents} agents cannot be chosen"));
    }
}

/// Volumes of containers are the workflow's, where it declares any.
fn check_volumes<'v>(
    volumes: impl Iterator<Item = &'v ContainerVolume>,
    at: &ManifestPath,
    shared: &[&str],
    problems: &mut ProblemList<'_>,
) {
    for (index, volume) in volumes.enumerate() {
        if !shared.is_empty() && !shared.contains(&volume.name.as_str()) {
            let message = format!("no shared volume is named `{}`", volume.name);
            problems.add(&at.join("volumes").join(index).join("name"), message);
        }
    }
}

/// Tells states that are never entered, and those from which the workflow never ends. Bounded cycles
/// are legal.
fn check_flow(
    initial: &str,
    states: &BTreeMap<String, WorkflowState>,
    problems: &mut ProblemList<'_>,
) {
    let mut forward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut backward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, state) in states {
        let name = name.as_str();
        for Transition { target, .. } in state.transitions() {
            forward.entry(name).or_default().push(target);
            backward.entry(target).or_default().push(name);
        }
    }
    let entered = reached(vec![initial], &forward);
    let terminal = states.iter().filter(|(_, state)| state.transitions().is_empty());
    let ending = reached(terminal.map(|(name, _)| name.as_str()).collect(), &backward);
    for name in states.keys().map(String::as_str) {
        let at = at!["spec", "states", name];
        if !entered.contains(name) {
            problems.add_key(&at, "is never entered: no way leads to it from the initial state");
        } else if !ending.contains(name) {
            let message =
                "no way leads from it to a state without transitions: the workflow never ends";
            problems.add_key(&at, message);
        }
    }
}

fn reached<'s>(from: Vec<&'s str>, ways: &BTreeMap<&'s str, Vec<&'s str>>) -> BTreeSet<&'s str> {
    let (mut seen, mut open) = (BTreeSet::new(), from);
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(ways.get(name).into_iter().flatten());
        }
    }
    seen
}
