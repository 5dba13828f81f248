//! Way out of a state that has ended.

use chrono::Utc;
use hivekeep_kernel::fault_point;
use hivekeep_manifest::workflow::WorkflowState;
use hivekeep_plan::{
    machine::{MachineFailure, MachineNext, final_output, next},
    plan::NodeIndex,
    progress::{MachineMove, NodeKey, ProgressRecord},
};
use hivekeep_runtime::log::LogError;

use super::{records::MachineRecord, visit::StateVisit};
use crate::run::{NodeLeft, RunFold, RunSaga, RunText};

impl RunSaga {
    /// Goes on from a state that has ended: to the next one, or to the end of the run.
    pub(crate) async fn leave_state(&self, node: NodeIndex) -> Result<(), LogError> {
        let run = self.handle.state();
        let RunText::Workflow(text) = &run.begun.text else {
            return self.leave_step(&run, node).await;
        };
        let tries = run.work().and_then(|work| work.progress.node(node)).map(|it| it.tries);
        let key = NodeKey { node, tries: tries.unwrap_or_default() };
        let Some(at) = StateVisit::of(&run, text, key) else { return Ok(()) };
        if let WorkflowState::Subworkflow { .. } = at.state
            && let Err(error) = self.stop_children(&run, key).await
        {
            tracing::warn!(run = %run.begun.id, %error, "the workflow of a state is not stopped");
        }
        let (way, record) = at.way();
        let left = Some(Box::new(NodeLeft::of_machine(record)));
        fault_point!("run.before_move");
        self.moved(ProgressRecord::Moved { left: node, way, at: Utc::now() }, left).await
    }
}

impl RunFold {
    /// Part of the last record of a workflow's run.
    pub(crate) fn finished(&self) -> Option<NodeLeft> {
        let (machine, outcome) = (self.machine.as_ref()?, self.work()?.progress.outcome()?);
        let error = machine.error().map(|error| error.message);
        Some(NodeLeft::of_machine(MachineRecord::Over { outcome, error }))
    }
}

impl StateVisit<'_> {
    fn way(&self) -> (MachineMove, MachineRecord) {
        let mut found = match (&self.machine.refused, &self.machine.output) {
            (Some(why), _) => MachineNext::Failed {
                failure: MachineFailure::BlackboardRefused,
                message: format!("the output of `{}`: {why}", self.name),
            },
            (None, Some(output)) => next(&self.view(), output),
            (None, None) => MachineNext::Failed {
                failure: MachineFailure::StateFailed,
                message: format!("`{}` has no output", self.name),
            },
        };
        let mut result = None;
        if found == MachineNext::Completed {
            match final_output(&self.text.manifest.metadata, &self.scope()) {
                Ok(output) => result = output,
                Err(why) => {
                    let message = format!("the final output: {why}");
                    found = MachineNext::Failed { failure: MachineFailure::OutputInvalid, message };
                }
            }
        }
        let (state, mut goes, mut told, mut failed) = (self.name.clone(), None, None, None);
        let way = match found {
            MachineNext::Completed => MachineMove::Completed,
            MachineNext::Enter { state, feedback } => {
                let node = self.text.index(&state);
                (goes, told) = (Some(state), feedback);
                node.map_or(MachineMove::Failed, |node| MachineMove::Node { node })
            }
            MachineNext::Failed { failure, mut message } => {
                let cause = self.machine.output.as_ref().and_then(|output| output.error.as_ref());
                if let Some(cause) = cause.filter(|_| failure == MachineFailure::NoTransition) {
                    message = format!("{message}: {cause}");
                }
                failed = Some((failure, message));
                MachineMove::Failed
            }
        };
        let record = MachineRecord::Left {
            state,
            next: goes,
            feedback: told,
            output: result,
            failure: failed,
        };
        (way, record)
    }
}
