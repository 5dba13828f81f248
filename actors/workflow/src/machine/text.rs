//! Workflow of a run: its blackboard at the beginning, its plan, and the volumes and containers that it names.

use hivekeep_kernel::{RunId, WorkflowId};
use hivekeep_manifest::{
    agent::StorageClass,
    common::JsonObject,
    workflow::{ContainerStep, WORKSPACE_KEY, WorkflowManifest, WorkflowState},
};
use hivekeep_plan::{
    lower::StepWork,
    machine::{Blackboard, MachineStart},
    plan::{FailurePolicy, NodeIndex, NodeOrder, NodeRole, PlanBounds, PlanNode, RunPlan},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Tenant of all runs: this daemon is one.
const TENANT: &str = "local";
/// Name of the volume that the states of a run share.
pub(super) const WORKSPACE: &str = "workspace";
/// Hours that a volume is kept that names no time, and its size.
const VOLUME_HOURS: u64 = 1;
const VOLUME_BYTES: u64 = 256 * MIB;
const MIB: u64 = 1024 * 1024;

/// Fields of a state with one container that the containers of others do not have.
const OF_STATE: [&str; 5] =
    ["kind", "transitions", "timeout", "max_state_visits", "output_handler"];

/// Workflow of a run, and what its caller gave for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunWorkflow {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) manifest: WorkflowManifest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) intent: Option<String>,
    pub(crate) input: Value,
    pub(super) blackboard: JsonObject,
}

/// Volume that the states of a run share.
pub(super) struct SharedStorage {
    pub(super) name: String,
    pub(super) persists: bool,
    pub(super) size_bytes: u64,
    pub(super) ttl_hours: u64,
}

impl RunWorkflow {
    /// Blackboard at the beginning.
    ///
    /// # Errors
    /// In words: a key that nobody may set, or more than fits.
    pub(super) fn blackboard(&self, run: RunId) -> Result<Blackboard, String> {
        let start = MachineStart {
            execution_id: run.to_string(),
            tenant_id: Some(TENANT.to_owned()),
            input: self.input.clone(),
            intent: self.intent.clone(),
            blackboard: self.blackboard.clone(),
        };
        let mut blackboard = Blackboard::new(&self.manifest, start)?;
        if let Some(volume) = self.volume(run, WORKSPACE) {
            let workspace =
                self.manifest.spec.storage.as_ref().and_then(|it| it.workspace.as_ref());
            let key = workspace.and_then(|it| it.blackboard_key.as_deref());
            blackboard.set(key.unwrap_or(WORKSPACE_KEY), json!(volume))?;
        }
        Ok(blackboard)
    }

    /// Id or label of a volume by its name in the manifest; none for a workspace that no state needs.
    pub(super) fn volume(&self, run: RunId, name: &str) -> Option<String> {
        let workspace = self.manifest.spec.storage.as_ref().and_then(|it| it.workspace.as_ref());
        let theirs = workspace.and_then(|it| it.volume_id.clone()).filter(|_| name == WORKSPACE);
        let shared = || self.storage().into_iter().any(|it| it.name == name);
        theirs.or_else(|| shared().then(|| format!("{run}-{name}")))
    }

    /// Volumes that are made for the run.
    pub(super) fn storage(&self) -> Vec<SharedStorage> {
        let storage = self.manifest.spec.storage.as_ref();
        let mut volumes = Vec::new();
        let workspace = storage.and_then(|it| it.workspace.as_ref());
        let mounts = self.manifest.spec.states.values().flat_map(containers);
        let mut mounts = mounts.flat_map(|it| it.volumes.unwrap_or_default());
        let is_made = match workspace {
            Some(workspace) => workspace.volume_id.is_none(),
            None => mounts.any(|it| it.name == WORKSPACE),
        };
        if is_made {
            let size_mb = workspace.and_then(|it| it.size_limit_mb);
            volumes.push(SharedStorage {
                name: WORKSPACE.to_owned(),
                persists: persists(workspace.and_then(|it| it.storage_class)),
                size_bytes: size_mb.map_or(VOLUME_BYTES, |size| size.saturating_mul(MIB)),
                ttl_hours: workspace.and_then(|it| it.ttl_hours).unwrap_or(VOLUME_HOURS),
            });
        }
        let shared = storage.and_then(|it| it.shared_volumes.as_ref()).into_iter().flatten();
        volumes.extend(shared.map(|it| SharedStorage {
            name: it.name.clone(),
            persists: persists(it.storage_class),
            size_bytes: it.size_limit_bytes.unwrap_or(VOLUME_BYTES),
            ttl_hours: VOLUME_HOURS,
        }));
        volumes
    }

    /// Plan with a node for each state, in the order of their names.
    pub(super) fn plan(&self) -> RunPlan<StepWork> {
        let spec = &self.manifest.spec;
        let count = |most: u64| u32::try_from(most).unwrap_or(u32::MAX);
        let node = |(name, state): (&String, &WorkflowState)| PlanNode {
            name: name.clone(),
            id: None,
            role: NodeRole::Step,
            action: StepWork {
                action: state.kind().to_owned(),
                with: JsonObject::new(),
                lines: None,
                routers: Vec::new(),
                step: Box::default(),
            },
            failure: FailurePolicy::default(),
            attempts: None,
            repeats: None,
            children_at_once: 1,
            back_to: None,
        };
        let order = NodeOrder::Machine {
            initial: self.index(&spec.initial_state).unwrap_or(NodeIndex(0)),
            visits: spec.states.values().map(|state| count(state.max_state_visits())).collect(),
            transitions: count(spec.max_total_transitions()),
        };
        RunPlan {
            name: self.manifest.metadata.name.clone(),
            nodes: spec.states.iter().map(node).collect(),
            order,
            bounds: PlanBounds { active_nodes: 1, timeout_ms: None, delay_ms: 0 },
            attempts: None,
            gated: false,
        }
    }

    /// Node of a state.
    pub(super) fn index(&self, state: &str) -> Option<NodeIndex> {
        let at = self.manifest.spec.states.keys().position(|name| name == state)?;
        u16::try_from(at).ok().map(NodeIndex)
    }
}

/// Containers of a state, in their order.
pub(super) fn containers(state: &WorkflowState) -> Vec<ContainerStep> {
    let one = |mut state: Value| {
        state.as_object_mut()?.retain(|key, _| !OF_STATE.contains(&key.as_str()));
        serde_json::from_value(state).ok()
    };
    match state {
        WorkflowState::ParallelContainerRun { steps, .. } => steps.clone(),
        WorkflowState::ContainerRun { .. } => {
            serde_json::to_value(state).ok().and_then(one).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn persists(class: Option<StorageClass>) -> bool {
    class == Some(StorageClass::Persistent)
}
