//! Beginning of a workflow's run: its first record, its plan, and the volumes that its states share.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Layer, RunId, SessionId, ToolError, User, WorkflowId, codes};
use hivekeep_manifest::{
    agent::StorageClass,
    common::JsonObject,
    workflow::{WORKSPACE_KEY, WorkflowManifest, WorkflowState},
};
use hivekeep_plan::{
    lower::StepWork,
    machine::{Blackboard, MachineStart},
    plan::{FailurePolicy, NodeIndex, NodeOrder, NodeRole, PlanBounds, PlanNode, RunPlan},
    resolve::RunBeginning,
};
use hivekeep_runtime::{OnBehalfOf, json_schema};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    container::{WORKSPACE, containers},
    obeyed::not_obeyed,
};
use crate::{
    codes::WORKFLOW_INVALID,
    run::{RunBegun, RunFold, RunPlace, RunRecord, RunResolved, RunSaga, RunText, RunTrigger},
};

/// Tenant of all runs: this daemon is one.
const TENANT: &str = "local";
/// Time limit of making a volume.
const MAKING_VOLUME: Duration = Duration::from_secs(120);
/// Hours that a volume is kept that names no time, and its size.
const VOLUME_HOURS: u64 = 1;
const VOLUME_BYTES: u64 = 256 * MIB;
const MIB: u64 = 1024 * 1024;

/// Request for a run of a workflow.
#[derive(Debug, Clone)]
pub struct MachineRequest {
    /// Id of the run.
    pub id: RunId,
    /// Owner of the run.
    pub user: User,
    /// Session that asks for it.
    pub session: SessionId,
    /// Workflow whose manifest it is.
    pub workflow_id: WorkflowId,
    /// Checked manifest. The run keeps it, whatever becomes of the workflow.
    pub manifest: Box<WorkflowManifest>,
    /// Intent in words.
    pub intent: Option<String>,
    /// Input, null if there is none.
    pub input: Value,
    /// Keys of the blackboard in place of the context's, and beside them.
    pub blackboard: JsonObject,
    /// Reason of the run.
    pub trigger: RunTrigger,
}

/// Workflow of a run, and what its caller gave for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunWorkflow {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) manifest: WorkflowManifest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<String>,
    pub(crate) input: Value,
    blackboard: JsonObject,
}

/// Volume that the states of a run share.
struct SharedStorage {
    name: String,
    persists: bool,
    size_bytes: u64,
    ttl_hours: u64,
}

impl MachineRequest {
    /// First record of the run.
    ///
    /// # Errors
    /// `workflow_invalid` for an input that does not fit, for keys that nobody may set, and for what no run obeys.
    pub(crate) fn begun(self, depth: u32) -> Result<RunRecord, ToolError> {
        let Self { id, user, session, workflow_id, manifest, intent, mut input, .. } = self;
        if let Some(field) = not_obeyed(&manifest) {
            return Err(invalid(format!("no run obeys {field}")));
        }
        if let Some(schema) = &manifest.metadata.input_schema {
            fit(schema, &mut input).map_err(invalid)?;
        }
        let (name, blackboard) = (manifest.metadata.name.clone(), self.blackboard);
        let text = RunWorkflow { workflow_id, manifest: *manifest, intent, input, blackboard };
        text.blackboard(id).map_err(invalid)?;
        Ok(RunRecord::Begun(Box::new(RunBegun {
            id,
            user,
            session,
            name,
            trigger: self.trigger,
            place: match text.volume(id, WORKSPACE) {
                Some(volume) => RunPlace::Folder(format!("volume:{volume}")),
                None => RunPlace::Own,
            },
            folder: String::new(),
            text: RunText::Workflow(Box::new(text)),
            depth,
            at: Utc::now(),
        })))
    }
}

/// Puts the defaults of a schema into an input, and checks it.
fn fit(schema: &JsonObject, input: &mut Value) -> Result<(), String> {
    if input.is_null() {
        *input = json!({});
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if let (Some(default), Some(input)) = (property.get("default"), input.as_object_mut()) {
            input.entry(key.clone()).or_insert_with(|| default.clone());
        }
    }
    let validator = json_schema::validator(&Value::Object(schema.clone()))?;
    let fault = validator.iter_errors(input).next().map(|error| {
        let place = error.instance_path().as_str().to_owned();
        format!("the input at `{place:.80}`: {}", error.masked_with("the value"))
    });
    fault.map_or(Ok(()), Err)
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
    fn storage(&self) -> Vec<SharedStorage> {
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
    fn plan(&self) -> RunPlan<StepWork> {
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

impl RunSaga {
    /// Makes the volumes of a workflow's run, and its plan. A volume that was made before a crash has its label.
    ///
    /// # Errors
    /// Those of making a volume.
    pub(crate) async fn prepare_machine(
        &self,
        run: &RunFold,
        text: &RunWorkflow,
    ) -> Result<RunResolved, ToolError> {
        let (id, caller) = (run.begun.id, OnBehalfOf::own(Self::session(run)?, MAKING_VOLUME));
        for volume in text.storage() {
            let mut args = json!({
                "label": format!("{id}-{}", volume.name), "size_limit_bytes": volume.size_bytes,
            });
            if !volume.persists {
                args["ttl_hours"] = json!(volume.ttl_hours);
            }
            let made: Result<IgnoredAny, _> =
                self.shared.tools.call(id, &caller, "aegis.volume.create", args).await;
            made.map(drop).or_else(|error| match error.is(codes::NAME_TAKEN) {
                true => Ok(()),
                false => Err(error),
            })?;
        }
        Ok(RunResolved { plan: Arc::new(text.plan()), beginning: RunBeginning::default() })
    }
}

fn persists(class: Option<StorageClass>) -> bool {
    class == Some(StorageClass::Persistent)
}

pub(super) fn invalid(message: String) -> ToolError {
    ToolError::new(Layer::Actor, WORKFLOW_INVALID, message)
        .next("mend the input or the manifest; nothing was run")
}
