//! Records of a state machine, and the events that they are shown as.

use hivekeep_kernel::{ExecutionId, RunId};
use hivekeep_plan::{
    machine::{MachineFailure, StateOutput, StateStatus},
    progress::RunOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Part of a record of progress that its state machine reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "machine", rename_all = "snake_case")]
pub(crate) enum MachineRecord {
    /// A state is entered, with ids for what it begins.
    Entered { state: String, visit: u32, executions: Vec<ExecutionId>, child: Option<RunId> },
    /// A person is asked.
    Asked { state: String, prompt: String },
    /// Another workflow is about to run.
    Calls { state: String, workflow: String, child: RunId },
    /// A state has ended, and left this.
    Ended { state: String, kind: String, output: Box<StateOutput> },
    /// A state is left.
    Left {
        state: String,
        next: Option<String>,
        feedback: Option<String>,
        /// Final output of the run.
        output: Option<Value>,
        failure: Option<(MachineFailure, String)>,
    },
    /// Nothing of the run goes on.
    Over { outcome: RunOutcome, error: Option<String> },
}

impl MachineRecord {
    /// Event by the name that the reference has for it, where it has one.
    pub(crate) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Entered { state, visit, executions, .. } => (
                "state_entered",
                json!({ "state_name": state, "visit": visit, "executions": executions }),
            ),
            Self::Asked { state, prompt } => {
                ("human_input_requested", json!({ "state_name": state, "prompt": prompt }))
            }
            Self::Calls { state, workflow, child } => (
                "subworkflow_triggered",
                json!({ "state_name": state, "workflow": workflow, "execution_id": child }),
            ),
            Self::Ended { state, kind, output } => {
                let succeeded = output.status == StateStatus::Succeeded;
                let name = match (kind.as_str(), succeeded) {
                    ("Agent" | "ParallelAgents", true) => "iteration_completed",
                    ("Agent" | "ParallelAgents", false) => "iteration_failed",
                    ("ContainerRun", true) => "container_run_completed",
                    ("ContainerRun", false) => "container_run_failed",
                    ("ParallelContainerRun", _) => "parallel_container_run_aggregated",
                    ("Subworkflow", true) => "subworkflow_completed",
                    ("Subworkflow", false) => "subworkflow_failed",
                    ("Human", _) => "human_input_received",
                    _ => "state_output",
                };
                (name, json!({ "state_name": state, "output": output.to_value() }))
            }
            Self::Left { state, next, feedback, output, failure } => (
                "state_exited",
                json!({
                    "state_name": state, "next_state": next, "feedback": feedback,
                    "final_output": output, "failure": failure,
                }),
            ),
            Self::Over { outcome, error } => {
                let name = match outcome {
                    RunOutcome::Succeeded | RunOutcome::PartlySucceeded => {
                        "workflow_execution_completed"
                    }
                    RunOutcome::Failed | RunOutcome::Rejected => "workflow_execution_failed",
                    RunOutcome::Aborted => "workflow_execution_cancelled",
                };
                (name, json!({ "error": error }))
            }
        }
    }
}
