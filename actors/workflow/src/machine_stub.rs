//! Runs of state machines as their tools see them, until the engine runs them. // piece M

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{RunId, SessionId, ToolError, User, WorkflowId, lock};
use hivekeep_manifest::{common::JsonObject, workflow::WorkflowManifest};
use hivekeep_runtime::runs::{RunCaller, RunStatus};
use serde_json::Value;

use crate::{DagRuns, RunTrigger};

/// Request for a run of a workflow.
#[derive(Debug, Clone)]
pub(crate) struct MachineRequest {
    pub(crate) id: RunId,
    pub(crate) user: User,
    pub(crate) session: SessionId,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) manifest: Box<WorkflowManifest>,
    pub(crate) intent: Option<String>,
    pub(crate) input: Value,
    pub(crate) blackboard: JsonObject,
    pub(crate) trigger: RunTrigger,
}

/// State of a run of a workflow.
#[derive(Debug, Clone)]
pub(crate) struct MachineStatus {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) status: RunStatus,
    pub(crate) current_state: Option<String>,
    pub(crate) started_at: DateTime<Utc>,
    pub(crate) last_transition_at: DateTime<Utc>,
    pub(crate) input: Value,
    pub(crate) blackboard: Value,
    pub(crate) state_outputs: Value,
    pub(crate) final_output: Option<Value>,
    pub(crate) error: Option<ToolError>,
}

static BEGUN: OnceLock<Mutex<BTreeMap<RunId, (User, MachineStatus)>>> = OnceLock::new();

fn begun() -> &'static Mutex<BTreeMap<RunId, (User, MachineStatus)>> {
    BEGUN.get_or_init(Mutex::default)
}

impl DagRuns {
    pub(crate) async fn begin_machine(&self, request: MachineRequest) -> Result<(), ToolError> {
        let metadata = &request.manifest.metadata;
        let status = MachineStatus {
            workflow_id: request.workflow_id,
            name: metadata.name.clone(),
            version: metadata.version.clone().unwrap_or_default(),
            status: RunStatus::Running,
            current_state: Some(request.manifest.spec.initial_state.clone()),
            started_at: Utc::now(),
            last_transition_at: Utc::now(),
            input: request.input,
            blackboard: Value::Object(request.blackboard),
            state_outputs: Value::Object(JsonObject::new()),
            final_output: request.intent.map(Value::String),
            error: None,
        };
        let _ = (request.session, request.trigger);
        lock(begun()).insert(request.id, (request.user, status));
        Ok(())
    }

    pub(crate) async fn machine(
        &self,
        caller: RunCaller,
        id: RunId,
    ) -> Result<MachineStatus, ToolError> {
        let known = lock(begun()).get(&id).cloned();
        let seen = known.filter(|(user, _)| caller.operator || *user == caller.user);
        seen.map(|(_, status)| status).ok_or_else(|| {
            let code = crate::codes::RUN_NOT_FOUND;
            ToolError::not_found(hivekeep_kernel::Layer::Resolve, code, "run", &id.to_string())
        })
    }

    pub(crate) async fn remove(&self, caller: RunCaller, id: RunId) -> Result<bool, ToolError> {
        let over = self.machine(caller, id).await?.status.is_over();
        Ok(over && lock(begun()).remove(&id).is_some())
    }

    pub(crate) async fn signal(
        &self,
        caller: RunCaller,
        id: RunId,
        response: String,
    ) -> Result<bool, ToolError> {
        self.machine(caller, id).await.map(|_| response == "yes")
    }

    pub(crate) async fn machines(
        &self,
        caller: RunCaller,
        workflow: Option<&str>,
        limit: usize,
        offset: usize,
    ) -> Result<(Vec<(RunId, MachineStatus)>, usize), ToolError> {
        let sees = |user: User| caller.operator || user == caller.user;
        let of = |status: &MachineStatus| {
            workflow.is_none_or(|workflow| status.workflow_id.to_string() == workflow)
        };
        let all = lock(begun());
        let seen = all.iter().rev().filter(|(_, (user, status))| sees(*user) && of(status));
        let rows: Vec<_> = seen.map(|(id, (_, status))| (*id, status.clone())).collect();
        let total = rows.len();
        Ok((rows.into_iter().skip(offset).take(limit).collect(), total))
    }
}
