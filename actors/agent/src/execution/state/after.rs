//! State of the jobs behind an output.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{ExecutionId, Layer, ToolError};
use hivekeep_manifest::agent::DeliveryCondition;
use serde_json::json;

use super::{Conclusion, ExecutionEnd, ExecutionState};
use crate::{
    codes,
    execution::{
        after::{AfterKey, AfterRecord, AfterStage},
        forks::TurnPlace,
        plan::after::{AfterJob, AfterWhen},
        step::ExecutionStep,
    },
};

/// Jobs so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AfterState(BTreeMap<AfterKey, JobProgress>);

/// Progress of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::execution) struct JobProgress {
    /// Number of attempts that were begun.
    pub(in crate::execution) attempts: u64,
    /// True while nothing is known of the last of them.
    pub(in crate::execution) is_open: bool,
    pub(in crate::execution) execution: Option<ExecutionId>,
    /// Outcome of the last attempt.
    end: Option<Result<(), Arc<ToolError>>>,
}

impl AfterState {
    pub(in crate::execution) fn follow(&mut self, record: &AfterRecord) {
        let job = self.0.entry(record.key).or_default();
        job.is_open = false;
        match &record.stage {
            AfterStage::Begun { execution, .. } => {
                (job.attempts, job.is_open, job.execution) = (record.attempt, true, *execution);
            }
            AfterStage::Failed { last: false, .. } => {}
            AfterStage::Failed { error, .. } => job.end = Some(Err(Arc::new((**error).clone()))),
            AfterStage::Done { .. } => job.end = Some(Ok(())),
        }
    }

    /// Forgets jobs of outputs behind a place.
    pub(super) fn drop_behind(&mut self, place: TurnPlace) {
        self.0.retain(|(iteration, turns, _), _| {
            (*iteration, *turns) <= (place.iteration + 1, place.turns)
        });
    }

    pub(in crate::execution) fn progress(&self, key: AfterKey) -> JobProgress {
        self.0.get(&key).cloned().unwrap_or_default()
    }
}

impl AfterJob {
    /// Whether it is done at this stage of an execution.
    fn is_meant(&self, end: Option<&ExecutionEnd>) -> bool {
        match (self.when, end) {
            (AfterWhen::Output { .. }, None) => true,
            (AfterWhen::End(when), Some(ExecutionEnd::Completed { .. })) => {
                when != DeliveryCondition::OnFailure
            }
            (AfterWhen::End(when), Some(ExecutionEnd::Failed { .. })) => {
                when != DeliveryCondition::OnSuccess
            }
            _ => false,
        }
    }
}

impl ExecutionState {
    /// Job that is due next at this stage.
    pub(in crate::execution) fn job_due(&self) -> Option<ExecutionStep> {
        let place = (self.iterations.len(), self.iterations.last().map_or(0, |it| it.turns.len()));
        let jobs = self.begun.plan.after.0.iter().enumerate();
        let mut meant = jobs.filter(|(_, job)| job.is_meant(self.end.as_deref()));
        meant.find_map(|(number, _)| {
            let key = (place.0, place.1, number);
            self.after.progress(key).end.is_none().then_some(ExecutionStep::Hand(key))
        })
    }

    /// Steps of an iteration whose calls and validators are over.
    pub(in crate::execution) fn concluding_steps(&self) -> Vec<ExecutionStep> {
        let is_taken =
            matches!(self.conclusion(), Some(Conclusion::Ends(ExecutionEnd::Completed { .. })));
        let job = if is_taken { self.job_due() } else { None };
        vec![job.unwrap_or(ExecutionStep::Conclude)]
    }

    /// End that the handlers of an output leave of it.
    pub(in crate::execution) fn handled(&self, end: ExecutionEnd) -> ExecutionEnd {
        let place = (self.iterations.len(), self.iterations.last().map_or(0, |it| it.turns.len()));
        let failed = |(number, job): (usize, &AfterJob)| match job.when {
            AfterWhen::Output { required: true } => {
                self.after.progress((place.0, place.1, number)).end?.err()
            }
            _ => None,
        };
        let failed = self.begun.plan.after.0.iter().enumerate().find_map(failed);
        let (ExecutionEnd::Completed { .. }, Some(why)) = (&end, failed) else { return end };
        let message = format!("the output was not handed on: {}", why.message);
        let error = ToolError::new(Layer::Actor, codes::OUTPUT_HANDLER_FAILED, message)
            .next("aegis.task.logs has the output and each attempt")
            .detail("cause", json!(why));
        ExecutionEnd::Failed { error: Box::new(error) }
    }
}
