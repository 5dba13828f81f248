//! Visit of a state: what its work reads.

use std::collections::BTreeMap;

use chrono::Utc;
use hivekeep_kernel::{ExecutionId, ToolError};
use hivekeep_manifest::{
    common::Labels,
    workflow::{WorkflowSpec, WorkflowState},
};
use hivekeep_plan::{
    machine::{Blackboard, CommandOutcome, MachineScope, MachineView, StateOutput, StateStatus},
    progress::{NodeKey, NodeOutcome, ProgressRecord, TryEnd},
};

use super::{records::MachineRecord, state::MachineState, text::RunWorkflow};
use crate::run::{NOT_STARTED, RunFold, RunRecord, failed};

/// State that a run is in.
pub(super) struct StateVisit<'v> {
    pub(super) run: &'v RunFold,
    pub(super) text: &'v RunWorkflow,
    pub(super) machine: &'v MachineState,
    blackboard: &'v Blackboard,
    pub(super) key: NodeKey,
    pub(super) name: &'v String,
    pub(super) state: &'v WorkflowState,
    transitions: u64,
    visits: BTreeMap<String, u64>,
}

impl<'v> StateVisit<'v> {
    /// Visit by the try of the state's node.
    pub(super) fn of(run: &'v RunFold, text: &'v RunWorkflow, key: NodeKey) -> Option<Self> {
        let (machine, progress) = (run.machine.as_deref()?, &run.work()?.progress);
        let blackboard = machine.blackboard.as_deref()?;
        let (name, state) = text.manifest.spec.states.iter().nth(key.node.at())?;
        let visited = |(at, node): (_, &hivekeep_plan::plan::PlanNode<_>)| {
            Some((node.name.clone(), u64::from(progress.node(at)?.visits)))
        };
        let visits = progress.plan().indexed().filter_map(visited).collect();
        let transitions = u64::from(progress.transitions());
        Some(Self { run, text, machine, blackboard, key, name, state, transitions, visits })
    }

    pub(super) fn spec(&self) -> &'v WorkflowSpec {
        &self.text.manifest.spec
    }

    pub(super) fn view(&self) -> MachineView<'_> {
        MachineView {
            spec: self.spec(),
            blackboard: self.blackboard,
            state: self.name,
            visits: &self.visits,
            transitions: self.transitions,
            feedback: self.machine.feedback.as_deref(),
        }
    }

    pub(super) fn scope(&self) -> MachineScope<'_> {
        self.view().scope()
    }

    /// Renders a text of a field.
    ///
    /// # Errors
    /// `step_failed`, which names the field.
    pub(super) fn rendered(&self, field: &str, text: &str) -> Result<String, ToolError> {
        self.scope().render(text).map_err(|why| unrendered(field, &why))
    }

    /// Command of a shell, in which values stay text.
    pub(super) fn command(&self, text: &str) -> Result<String, ToolError> {
        self.scope().command(text).map_err(|why| unrendered("command", &why))
    }

    pub(super) fn environment(&self, env: Option<&Labels>) -> Result<Labels, ToolError> {
        let rendered = |(name, text): (&String, &String)| {
            Ok((name.clone(), self.rendered(&format!("env.{name:.80}"), text)?))
        };
        env.into_iter().flatten().map(rendered).collect()
    }

    /// Id of an execution, by its place among those of the state.
    pub(super) fn execution(&self, place: usize) -> Result<ExecutionId, ToolError> {
        let id = self.machine.executions.get(place).copied();
        id.ok_or_else(|| ToolError::internal("an agent of no state"))
    }

    /// Output of a state that has no result.
    pub(super) fn failure(&self, why: &str) -> StateOutput {
        match self.state {
            WorkflowState::System { .. } | WorkflowState::ContainerRun { .. } => {
                StateOutput::command(not_run()).failed(why)
            }
            WorkflowState::Human { .. } => StateOutput::human("", true).failed(why),
            _ => StateOutput::nothing(why),
        }
    }

    /// Record of the state's end.
    pub(super) fn ended(&self, output: StateOutput) -> RunRecord {
        let outcome = match output.status {
            StateStatus::Succeeded => NodeOutcome::Succeeded,
            StateStatus::Failed => NodeOutcome::Failed,
        };
        let exit_code = output.exit_code().and_then(|code| i32::try_from(code).ok());
        let end = TryEnd { outcome, exit_code, said: false, again: false, last: false };
        RunRecord::machine(
            ProgressRecord::Ended { key: self.key, end, at: Utc::now() },
            MachineRecord::Ended {
                state: self.name.clone(),
                kind: self.state.kind().to_owned(),
                output: Box::new(output),
            },
        )
    }
}

pub(super) fn unrendered(field: &str, why: &str) -> ToolError {
    failed(format!("its `{field}`: {why}"))
}

/// Outcome of a command that was not run.
pub(super) fn not_run() -> CommandOutcome {
    let (stdout, stderr) = (String::new(), String::new());
    let exit_code = NOT_STARTED.into();
    CommandOutcome { exit_code, stdout, stderr, duration_ms: 0, attempts: 0 }
}
