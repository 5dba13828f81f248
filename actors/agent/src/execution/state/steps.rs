//! Steps that a state of an execution has due, and what a turn comes to.

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{Layer, ToolError};

use super::{Conclusion, ExecutionEnd, ExecutionState, Iteration, Record, Turn, TurnStop};
use crate::{
    codes,
    execution::{
        standstill::{StandstillChange, StandstillState},
        step::ExecutionStep,
    },
};

/// Turns in a row of nothing but calls that cannot be made, after which an iteration fails.
const MOST_UNUSABLE_TURNS: usize = 3;

impl ExecutionState {
    /// Steps that can be taken now.
    pub(crate) fn due(&self) -> Vec<ExecutionStep> {
        let forsaken = self.forsaken();
        if !forsaken.is_empty() {
            return forsaken;
        }
        if self.end.is_some() {
            let open = self.child.is_some() && !self.closed;
            return match (open, self.job_due()) {
                _ if self.has_to_inform() => vec![ExecutionStep::Inform],
                (_, Some(job)) => vec![job],
                (true, None) => vec![ExecutionStep::Close],
                (false, None) => Vec::new(),
            };
        }
        if self.child.is_none() {
            return vec![ExecutionStep::Open];
        }
        let placed = self.workspace.is_some() || self.begun.plan.machine.is_none();
        if !placed || self.inherited_machine().is_some() {
            return vec![ExecutionStep::Place];
        }
        if self.context_to_read().is_some() {
            return vec![ExecutionStep::Read];
        }
        if self.runs_program() {
            return vec![ExecutionStep::Program];
        }
        if let Some(step) = self.standstill_due() {
            return vec![step];
        }
        if self.forks.rewinding().is_some() {
            return vec![ExecutionStep::Rewind];
        }
        if self.account.waiting().is_some() {
            return Vec::new();
        }
        if self.awaits_message() {
            return Vec::new();
        }
        if self.calls_to_admit().is_some() {
            return vec![ExecutionStep::Admit];
        }
        if self.is_between_messages() {
            return vec![ExecutionStep::Prompt];
        }
        let Some(iteration) = self.iteration() else { return vec![ExecutionStep::Prompt] };
        if self.calls_wait() {
            return vec![ExecutionStep::Checkpoint];
        }
        let calls = self.calls_due(iteration);
        match self.conclusion() {
            _ if !calls.is_empty() => calls,
            Some(last) => self.output_steps(&last).unwrap_or_else(|| self.concluding_steps()),
            None => {
                let asks = match self.compaction_due() {
                    Some(_) => ExecutionStep::Compact,
                    None => ExecutionStep::Turn,
                };
                // Beside the request, which changes nothing in the machine.
                let keeps = self.checkpoint_due().map(|_| ExecutionStep::Checkpoint);
                keeps.into_iter().chain([asks]).collect()
            }
        }
    }

    /// Whether a program is to run, or runs. It listens on while it waits for more budget.
    fn runs_program(&self) -> bool {
        let runs = self.iteration().is_some_and(|iteration| iteration.program.is_none());
        self.begun.plan.program.is_some() && self.end.is_none() && runs
    }

    /// Steps of the call of a program that runs.
    pub(crate) fn program_steps(&self) -> Vec<ExecutionStep> {
        let waits = self.account.waiting().is_some() || !self.runs_program();
        if waits { Vec::new() } else { self.begun_calls() }
    }

    /// Steps of the last turn's calls, also while the execution waits: they may have been begun before that.
    pub(crate) fn begun_calls(&self) -> Vec<ExecutionStep> {
        let Some(iteration) = self.iteration().filter(|_| !self.calls_wait()) else {
            return Vec::new();
        };
        match self.calls_due(iteration) {
            due if !due.is_empty() && self.calls_to_admit().is_some() => vec![ExecutionStep::Admit],
            due => due,
        }
    }

    /// Steps of the last turn's calls; none of those that a program did not wait for.
    fn calls_due(&self, iteration: &Iteration) -> Vec<ExecutionStep> {
        if iteration.program.is_some() {
            return Vec::new();
        }
        let at = (self.iterations.len() - 1, iteration.turns.len().saturating_sub(1));
        let calls = iteration.turns.last().map(Turn::due).unwrap_or_default();
        calls.into_iter().flat_map(|call| self.call_steps((at.0, at.1, call))).collect()
    }

    /// Last turn with the number of its calls, if they are bounded and not set aside yet.
    pub(crate) fn calls_to_admit(&self) -> Option<(usize, usize, u64)> {
        let iteration =
            self.iteration().filter(|it| self.counts_calls() && it.program.is_none())?;
        let turn = iteration.turns.last()?;
        let (iteration, next) = self.next_turn();
        let calls = turn.answer.calls.len() as u64;
        let place = (iteration, next - 1);
        (calls > 0 && !self.account.admits(place)).then_some((place.0, place.1, calls))
    }

    /// Consequence of the last turn when all of its calls have ended; `None` for another turn.
    pub(crate) fn conclusion(&self) -> Option<Conclusion> {
        if self.forks.rewinding().is_some() {
            return None;
        }
        let (iteration, limits) = (self.iteration()?, &self.begun.plan.limits);
        if let Some(program) = &self.begun.plan.program {
            let any_status = self.begun.plan.validation.reads_exit_code();
            let taken = iteration.program.as_ref()?.conclusion(&program.name, any_status);
            return Some(match taken {
                Conclusion::Ends(_) => self.rejected_output().unwrap_or(taken),
                failed @ Conclusion::Fails(_) => failed,
            });
        }
        if let Some(error) = self.compaction_failure() {
            return Some(Conclusion::Fails(error));
        }
        let last = iteration.turns.last()?;
        let fails = |code, message: String, next: &str| {
            Some(Conclusion::Fails(ToolError::new(Layer::Actor, code, message).next(next)))
        };
        if last.answer.stop == TurnStop::Refused {
            let message = format!("{} withheld its answer", last.answer.model);
            return fails(codes::MODEL_REFUSED, message, "read what it said, and ask otherwise");
        }
        // A message that came meanwhile is read before the end.
        let goes_on = last.answer.stop == TurnStop::Done && self.account.has_unread();
        if last.answer.calls.is_empty() && !goes_on {
            return match last.answer.stop {
                TurnStop::CutShort => {
                    let message = format!("the answer of {} was cut short", last.answer.model);
                    let next = "raise `max_output_tokens` of the model, or ask for less";
                    fails(codes::ANSWER_CUT_SHORT, message, next)
                }
                _ => {
                    let output = last.answer.text.clone();
                    let taken = Conclusion::Ends(ExecutionEnd::Completed { output });
                    Some(self.rejected_output().unwrap_or(taken))
                }
            };
        }
        if self.tokens >= limits.tokens {
            let message =
                format!("{} tokens were used, {} are allowed", self.tokens, limits.tokens);
            let error = ToolError::new(Layer::Quota, codes::TOKENS_EXHAUSTED, message)
                .next("ask for less, or have the operator raise `agent.max_tokens`");
            return Some(Conclusion::Ends(ExecutionEnd::Failed { error: Box::new(error) }));
        }
        let unusable = iteration.turns.iter().rev().take_while(|turn| turn.is_unusable()).count();
        if unusable >= MOST_UNUSABLE_TURNS {
            let message = format!("the model asked {unusable} times for calls that cannot be made");
            let next =
                "aegis.task.logs shows them: give the agent the tools, or mend its instruction";
            return fails(codes::CALLS_UNUSABLE, message, next);
        }
        if iteration.turns.len() >= limits.turns {
            let message = format!("{} turns were not enough", limits.turns);
            let next = "ask for less, or have the operator raise `agent.max_turns`";
            return fails(codes::TURNS_EXHAUSTED, message, next);
        }
        None
    }
}

impl ExecutionState {
    /// True if there may be a machine: the manifest asks for one, or a call may have made it.
    pub(super) fn may_have_machine(&self) -> bool {
        let calls = |it: &Iteration| it.turns.iter().any(|turn| !turn.answer.calls.is_empty());
        self.begun.plan.machine.is_some() || self.iterations.iter().any(|it| calls(it))
    }

    /// Step by which the machine stands still, or goes on.
    pub(crate) fn standstill_due(&self) -> Option<ExecutionStep> {
        let waits = self.account.waiting().is_some() || self.awaits_message();
        match (self.still, waits && self.forks.rewinding().is_none()) {
            (StandstillState::None, _) => None,
            (StandstillState::Wanted { .. }, true) => Some(ExecutionStep::Halt),
            (StandstillState::Stands | StandstillState::Runs, true) => None,
            (_, false) => Some(ExecutionStep::GoOn),
        }
    }

    /// True if nothing may be asked of the machine for now.
    pub(crate) fn stands_still(&self) -> bool {
        matches!(self.still, StandstillState::Stands | StandstillState::Wanted { .. })
    }

    /// Time from which on a chat that waits for a message needs no machine.
    pub(super) fn idle_at(&self) -> Option<DateTime<Utc>> {
        let secs = i64::try_from(self.begun.plan.limits.idle_secs).ok().filter(|secs| *secs > 0)?;
        let idle = self.still == StandstillState::None && self.awaits_message();
        (idle && self.may_have_machine()).then(|| self.last_at + TimeDelta::seconds(secs))
    }

    /// Record of a chat whose machine is not needed for now.
    pub(super) fn became_idle(&self, now: DateTime<Utc>) -> Option<Record> {
        self.idle_at().filter(|at| *at <= now)?;
        Some(Record::Standstill { change: StandstillChange::Idle, at: now })
    }
}
