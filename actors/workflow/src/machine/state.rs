//! State machine of a run, as its records add up to it.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ExecutionId, Layer, RunId, ToolError};
use hivekeep_manifest::{common::TimeSpan, workflow::WorkflowState};
use hivekeep_plan::{
    machine::{Blackboard, MachineFailure, StateOutput, StateResult},
    progress::{ProgressRecord, RetryFrom},
};
use serde_json::Value;

use super::{records::MachineRecord, text::RunWorkflow};
use crate::{
    codes::{NO_TRANSITION, WORKFLOW_FAILED},
    run::{RunBegun, RunRecord},
};

/// Time for which a person is waited for whose state names none.
const ASKING: Duration = Duration::from_secs(60 * 60);

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MachineState {
    id: RunId,
    /// Blackboard; none of a run that is over and is not shown.
    pub(super) blackboard: Option<Arc<Blackboard>>,
    /// Feedback of the transition that led to the state.
    pub(super) feedback: Option<String>,
    /// Last state that was entered.
    pub(super) state: Option<String>,
    /// Executions of the state's agents, in the order in which it names them.
    pub(super) executions: Vec<ExecutionId>,
    /// Run of the workflow that the state runs.
    pub(super) child: Option<RunId>,
    /// Time of the end by force of the state.
    pub(super) ends_at: Option<DateTime<Utc>>,
    /// Output of a state that has ended and is not left.
    pub(super) output: Option<Arc<StateOutput>>,
    /// Reason why the blackboard did not take that output.
    pub(super) refused: Option<String>,
    /// Answers that came before a state that takes them.
    pub(super) signals: Vec<String>,
    pub(super) final_output: Option<Value>,
    failure: Option<(MachineFailure, String)>,
    pub(super) moved_at: DateTime<Utc>,
}

impl MachineState {
    /// State before the first record behind the beginning.
    ///
    /// # Errors
    /// As [`RunWorkflow::blackboard`].
    pub(crate) fn begin(text: &RunWorkflow, begun: &RunBegun) -> Result<Self, String> {
        Ok(Self {
            id: begun.id,
            blackboard: Some(Arc::new(text.blackboard(begun.id)?)),
            feedback: None,
            state: None,
            executions: Vec::new(),
            child: None,
            ends_at: None,
            output: None,
            refused: None,
            signals: Vec::new(),
            final_output: None,
            failure: None,
            moved_at: begun.at,
        })
    }

    /// Moves on by a record of progress that fits.
    pub(crate) fn moved(
        &mut self,
        text: &RunWorkflow,
        progress: &ProgressRecord,
        record: Option<&MachineRecord>,
    ) {
        match (progress, record.cloned()) {
            (
                ProgressRecord::Entered { at, .. },
                Some(MachineRecord::Entered { state, executions, child, .. }),
            ) => {
                let limit = text.manifest.spec.states.get(&state).and_then(longest_stay);
                self.ends_at =
                    limit.and_then(|limit| at.checked_add_signed(TimeDelta::from_std(limit).ok()?));
                (self.executions, self.child, self.moved_at) = (executions, child, *at);
                (self.output, self.state) = (None, Some(state));
            }
            (_, Some(MachineRecord::Ended { state, output, .. })) => {
                if let StateResult::Human { response, timed_out: false } = &output.result
                    && let Some(at) = self.signals.iter().position(|it| it == response)
                {
                    self.signals.remove(at);
                }
                let planned = text.manifest.spec.states.get(&state);
                let blackboard = self.blackboard.as_mut().map(Arc::make_mut);
                let put = planned.zip(blackboard);
                let put = put.map(|(it, blackboard)| blackboard.put_output(&state, it, &output));
                self.refused = put.and_then(Result::err);
                self.output = Some(Arc::from(output));
            }
            (
                ProgressRecord::Moved { at, .. },
                Some(MachineRecord::Left { feedback, output, failure, .. }),
            ) => {
                (self.feedback, self.final_output, self.failure) = (feedback, output, failure);
                (self.output, self.moved_at) = (None, *at);
            }
            (ProgressRecord::Retried { from, .. }, _) => {
                if *from == RetryFrom::Beginning {
                    self.blackboard = text.blackboard(self.id).ok().map(Arc::new);
                    self.feedback = None;
                }
                (self.output, self.final_output, self.failure) = (None, None, None);
            }
            _ => {}
        }
    }

    /// Moves on by a record that is none of progress.
    pub(crate) fn noted(&mut self, note: RunRecord) {
        if let RunRecord::Signalled { response, .. } = note {
            self.signals.push(response);
        }
    }

    /// Drops, at the end of the run, what is read from its records again.
    pub(crate) fn rest(&mut self) {
        (self.blackboard, self.output, self.final_output) = (None, None, None);
        (self.signals, self.executions) = (Vec::new(), Vec::new());
    }

    /// Reason why the machine found no way on.
    pub(crate) fn error(&self) -> Option<ToolError> {
        let (failure, message) = self.failure.as_ref()?;
        let code = match failure {
            MachineFailure::NoTransition => NO_TRANSITION,
            _ => WORKFLOW_FAILED,
        };
        let failure = serde_json::to_value(failure).unwrap_or_default();
        let error = ToolError::new(Layer::Actor, code, message.clone()).detail("failure", failure);
        Some(error.next("mend the workflow or what it works on, and run it again"))
    }

    /// Result for whoever ran the workflow: its final output, or the output of its last state where it has none.
    pub(crate) fn result(&self) -> Option<Value> {
        let of_state = || {
            let values = self.blackboard.as_ref()?.values();
            values.get(self.state.as_ref()?)?.get("output").cloned()
        };
        self.final_output.clone().or_else(of_state)
    }
}

/// Longest stay in a state.
fn longest_stay(state: &WorkflowState) -> Option<Duration> {
    let limit = state.timeout().and_then(TimeSpan::duration);
    limit.or(matches!(state, WorkflowState::Human { .. }).then_some(ASKING))
}
