//! The best of several forks: the output of each is judged by the same agents, as a validator of its own judges it,
//! and the highest score is the best.

use hivekeep_kernel::{ExecutionId, ToolError};
use hivekeep_manifest::{agent::Validator, common::Share};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Answer;
use crate::execution::{
    judging::{JudgedSubject, ValidationVerdict},
    plan::ExecutionPlan,
    state::{ExecutionEnd, ExecutionState},
};

/// Judges of forks. Their mean is the score of a fork, and all have to answer: a fork that one of them does not judge
/// fails.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BestOf {
    /// Names of the judging agents.
    #[schemars(length(min = 1, max = 16))]
    judges: Vec<String>,
    /// Criteria that they score an output by.
    #[schemars(length(min = 1, max = 65_536))]
    criteria: String,
    /// Longest run of a judge in seconds. Default: 300.
    #[schemars(range(min = 1, max = 86_400))]
    timeout_seconds: Option<u64>,
}

impl BestOf {
    /// Has the output of a plan judged.
    ///
    /// # Errors
    /// `invalid_input` for a chat, and where no judge is named.
    pub(super) fn judge(self, plan: &mut ExecutionPlan) -> Answer<()> {
        let Self { judges, criteria, timeout_seconds } = self;
        let refused = |why: &str, next: &'static str| Err(ToolError::invalid(why).next(next));
        if plan.chat.is_some() {
            return refused("no output of a chat is judged", "leave `best_of` out");
        }
        if judges.is_empty() || criteria.trim().is_empty() {
            return refused("`best_of` has no judges, or no criteria", "give it both");
        }
        plan.validation.judge_best_of(Validator::MultiJudge {
            min_judges_required: Some(judges.len() as u64),
            judges,
            consensus: None,
            criteria,
            // A low score has nothing done again: it is compared with those of the others.
            min_score: Some(Share(0.0)),
            min_confidence: None,
            timeout_seconds,
        });
        let asked = plan.validation.judges().map(|(_, _, name)| name).collect::<Vec<_>>();
        plan.judges.retain(|name, _| asked.contains(&name));
        Ok(())
    }
}

/// Verdict that ranks a fork; none unless it completed.
pub(super) fn ranking(state: &ExecutionState) -> Option<&ValidationVerdict> {
    let place = state.begun.plan.validation.best_of?;
    let Some(ExecutionEnd::Completed { .. }) = state.end.as_deref() else { return None };
    let verdicts = state.judging.verdicts().iter().rev();
    let mut of_output = verdicts.filter(|(key, _)| {
        matches!(key.subject, JudgedSubject::Output { .. }) && key.validator == place
    });
    of_output.next().map(|(_, verdict)| verdict)
}

/// The one with the highest score, or of several the most confident one, or the first. None while one that is to be
/// judged goes on, or where they are not judged by the same.
pub(super) fn best(states: &[ExecutionState]) -> Option<ExecutionId> {
    let judges = |state: &&ExecutionState| state.begun.plan.validation.best_of().cloned();
    let forks: Vec<_> = states.iter().filter(|state| judges(state).is_some()).collect();
    let same = forks.iter().all(|fork| judges(fork) == judges(&forks[0]));
    if !same || forks.iter().any(|fork| fork.end.is_none()) {
        return None;
    }
    let ranked = forks.into_iter().filter_map(|fork| {
        let ValidationVerdict { score, confidence, .. } = ranking(fork)?;
        Some(((*score, *confidence), fork.begun.id))
    });
    let best = ranked.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, id)| id)
}
