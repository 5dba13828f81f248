//! Runs of workflows as their users see them.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{RunId, ToolError, WorkflowId};
use hivekeep_runtime::{
    log::Sourced,
    runs::{RunCaller, RunState, RunStatus},
};
use serde_json::Value;

use super::begin::{MachineRequest, invalid};
use crate::{
    DagRuns,
    run::{RunFold, RunStage, RunText},
};

/// Run of a workflow at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineStatus {
    /// Workflow whose manifest it is.
    pub workflow_id: WorkflowId,
    /// Name of the workflow.
    pub name: String,
    /// Version of the manifest.
    pub version: String,
    /// Stage of the run.
    pub status: RunStatus,
    /// State that it is in, or was in last; none before the first.
    pub current_state: Option<String>,
    /// Time of its first record.
    pub started_at: DateTime<Utc>,
    /// Time at which a state was entered or left last.
    pub last_transition_at: DateTime<Utc>,
    /// Input, with the defaults of its schema.
    pub input: Value,
    /// Values by key, an object.
    pub blackboard: Value,
    /// Outputs of the states that have ended, by their names: the last one of each.
    pub state_outputs: Value,
    /// Final output of a run that has completed, if its workflow has a template of one.
    pub final_output: Option<Value>,
    /// Reason why it failed.
    pub error: Option<ToolError>,
}

impl DagRuns {
    /// Begins a run of a workflow, which is durable when this returns.
    ///
    /// # Errors
    /// `workflow_invalid`, `too_many_runs`, `daemon_stopping`, `journal_failed`.
    pub async fn begin_machine(&self, request: MachineRequest) -> Result<(), ToolError> {
        self.0.begin(request.id, request.begun(0)?).await
    }

    /// Reads a run of a workflow: from its records once it is over.
    ///
    /// # Errors
    /// `run_not_found`; `workflow_invalid` for a run of a DAG; when its records cannot be read.
    pub async fn machine(&self, caller: RunCaller, id: RunId) -> Result<MachineStatus, ToolError> {
        let id = id.to_string();
        let view = self.0.get(caller, &id)?;
        let (status, rests) = (view.status(), |run: &RunFold| {
            run.machine.as_ref().is_some_and(|machine| machine.blackboard.is_none())
        });
        let run = match rests(&view.state) {
            false => view.state,
            true => folded(self.0.records(caller, &id).await?).unwrap_or(view.state),
        };
        shown(&run, status).ok_or_else(|| invalid(format!("the run {id} is one of a DAG")))
    }

    /// Lists runs of workflows, of one or of all, the newest first: those behind the first `offset`, and how many there
    /// are. Of those that are over blackboard and outputs are left out.
    pub fn machines(
        &self,
        caller: RunCaller,
        workflow: Option<&str>,
        limit: usize,
        offset: usize,
    ) -> (Vec<(RunId, MachineStatus)>, usize) {
        let (all, _) = self.0.list(caller, workflow, usize::MAX);
        let rows =
            all.into_iter().filter_map(|(id, view)| Some((id, shown(&view.state, view.status())?)));
        let rows: Vec<_> = rows.collect();
        let total = rows.len();
        (rows.into_iter().skip(offset).take(limit).collect(), total)
    }

    /// Removes a run that is over, with its records; false for another.
    ///
    /// # Errors
    /// `run_not_found`, `journal_failed`; `busy` while it takes its last steps.
    pub async fn remove(&self, caller: RunCaller, id: RunId) -> Result<bool, ToolError> {
        self.0.remove(caller, &id.to_string()).await
    }
}

/// Run as it is shown; none for one of a DAG.
fn shown(run: &RunFold, status: RunStatus) -> Option<MachineStatus> {
    let RunText::Workflow(text) = &run.begun.text else { return None };
    let (machine, metadata) = (run.machine.as_ref()?, &text.manifest.metadata);
    let blackboard = machine.blackboard.as_ref().map(|it| it.values().clone()).unwrap_or_default();
    let states = text.manifest.spec.states.keys();
    let outputs = states.filter_map(|it| Some((it.clone(), blackboard.get(it)?.clone())));
    Some(MachineStatus {
        workflow_id: text.workflow_id,
        name: metadata.name.clone(),
        version: metadata.version.clone().unwrap_or_else(|| "1.0.0".to_owned()),
        status,
        current_state: machine.state.clone(),
        started_at: run.began_at(),
        last_transition_at: machine.moved_at,
        input: text.input.clone(),
        state_outputs: Value::Object(outputs.collect()),
        blackboard,
        final_output: machine.final_output.clone(),
        error: match &run.stage {
            RunStage::Refused(error) => Some((**error).clone()),
            _ => machine.error(),
        },
    })
}

fn folded(records: Vec<crate::run::RunRecord>) -> Option<RunFold> {
    let mut records = records.into_iter();
    let mut run = RunFold::begin(records.next()?).ok()?;
    records.try_for_each(|record| run.apply(record)).ok()?;
    Some(run)
}
