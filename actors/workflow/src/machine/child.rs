//! Another workflow that a state runs: as a child whose end is waited for, or as a run of its own.

use chrono::Utc;
use hivekeep_kernel::{ToolError, User, WorkflowId};
use hivekeep_manifest::workflow::{SubworkflowMode, WorkflowManifest, WorkflowState};
use hivekeep_plan::{
    machine::{StateOutput, StateResult, StateStatus},
    progress::ProgressRecord,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    MachineRequest, Workflows,
    begin::invalid,
    records::MachineRecord,
    visit::{StateVisit, unrendered},
    work::StateDone,
};
use crate::run::{MAX_DEPTH, NodeLeft, RunBegun, RunChild, RunRecord, RunSaga, RunTrigger};

impl RunSaga {
    /// Begins another workflow, or collects what it left.
    pub(super) async fn call(
        &self,
        at: &StateVisit<'_>,
        cancel: &CancellationToken,
    ) -> Result<StateDone, ToolError> {
        let WorkflowState::Subworkflow { workflow_id, mode, input, .. } = at.state else {
            return Err(ToolError::internal("a state of another kind"));
        };
        if at.run.children.contains_key(&at.key.node) {
            return Ok(StateDone::Output(at.collected()));
        }
        let id = at.machine.child.ok_or_else(|| ToolError::internal("a child of no state"))?;
        let workflow = at.rendered("workflow_id", workflow_id)?;
        let given = input.as_ref().map(|text| at.scope().child_input(text)).transpose();
        let given = given.map_err(|why| unrendered("input", &why))?.unwrap_or_default();
        let child = RunChild {
            id,
            dag: Some(workflow.clone()),
            given,
            key: None,
            attempt: None,
            queue: None,
        };
        if *mode == Some(SubworkflowMode::FireAndForget) {
            let begun = self.subworkflow(&at.run.begun, &child, RunTrigger::Start)?;
            self.begin_child(id, &begun, cancel).await?;
            let result = StateResult::Subworkflow { execution_id: id.to_string(), output: None };
            let output = StateOutput { status: StateStatus::Succeeded, error: None, result };
            return Ok(StateDone::Output(output));
        }
        // A workflow that is not there fails the state, and not its child.
        self.workflow(at.run.begun.user, &workflow)?;
        let progress = ProgressRecord::Expanded { key: at.key, children: 1, at: Utc::now() };
        let calls = MachineRecord::Calls { state: at.name.clone(), workflow, child: id };
        let left = NodeLeft { children: vec![child], ..NodeLeft::of_machine(calls) };
        Ok(StateDone::Waits(RunRecord::Moved { progress, left: Some(Box::new(left)) }))
    }

    fn workflow(
        &self,
        user: User,
        id_or_name: &str,
    ) -> Result<(WorkflowId, WorkflowManifest), ToolError> {
        let workflows = self.shared.daemon.ports.need::<dyn Workflows>()?;
        let found = workflows.find(user, id_or_name, None);
        found.ok_or_else(|| invalid(format!("there is no workflow `{id_or_name:.80}`")))
    }

    /// First record of another workflow's run, which begins with an empty blackboard.
    pub(crate) fn subworkflow(
        &self,
        parent: &RunBegun,
        child: &RunChild,
        trigger: RunTrigger,
    ) -> Result<RunRecord, ToolError> {
        if parent.depth >= MAX_DEPTH {
            let message = format!("runs are {MAX_DEPTH} deep in one another, as many as may");
            return Err(invalid(message));
        }
        let (workflow_id, manifest) =
            self.workflow(parent.user, child.dag.as_deref().unwrap_or_default())?;
        let request = MachineRequest {
            id: child.id,
            user: parent.user,
            session: parent.session,
            workflow_id,
            manifest: Box::new(manifest),
            intent: None,
            input: child.given.clone(),
            blackboard: Default::default(),
            trigger,
        };
        request.begun(parent.depth + 1)
    }
}

impl StateVisit<'_> {
    /// Output of a state whose child is over.
    fn collected(&self) -> StateOutput {
        let left = self.run.results.get(&(self.key.node, 0)).cloned().unwrap_or_default();
        let execution_id = self.machine.child.map(|id| id.to_string()).unwrap_or_default();
        let output = Some(left.published.clone().unwrap_or(Value::Null));
        let result = StateResult::Subworkflow { execution_id, output };
        let output = StateOutput { status: StateStatus::Succeeded, error: None, result };
        match (&left.error, left.succeeded) {
            (Some(error), _) => output.failed(error.message.clone()),
            (None, false) => output.failed("the workflow that it runs did not complete"),
            (None, true) => output,
        }
    }
}
