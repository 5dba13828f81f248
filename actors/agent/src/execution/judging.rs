//! State of what is judged: which judges were asked, what they answered, and the verdicts of the validators.
//!
//! ```text
//! output, or a call that has side effects
//!   └─ each validator in order ─▶ ( judge asked ─▶ judge ended )* ─▶ validated ─┬─▶ passed: the next one
//!                                                                               └─▶ failed: the last one
//! ```
//! A judge is asked by an execution whose id is recorded before it is begun.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ExecutionId, Layer, ToolError};
use hivekeep_manifest::{
    agent::Validator,
    consensus::{ConsensusRule, JudgeScore, consensus},
};

pub(crate) use super::verdicts::{
    JudgeOpinion, JudgedSubject, JudgingRecord, ValidationVerdict, VerdictKey,
};
use super::{
    forks::TurnPlace,
    program_end::ProgramEnd,
    state::{CallEnd, CallKey, Conclusion, ExecutionEnd, ExecutionState, Iteration},
    step::ExecutionStep,
    validation::{
        self, JudgeCheck, JudgeSeat, LastCommand, OrderedScore, is_command, judged_by, least,
    },
};
use crate::codes;

/// A judge that was asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AskedJudge {
    pub(crate) execution: ExecutionId,
    pub(crate) at: DateTime<Utc>,
    pub(crate) opinion: Option<JudgeOpinion>,
}

/// Judges and verdicts of an execution.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JudgingState {
    /// By the verdict that they are asked for, and their places among its judges.
    asked: BTreeMap<(VerdictKey, usize), AskedJudge>,
    verdicts: BTreeMap<VerdictKey, ValidationVerdict>,
}

impl JudgingState {
    pub(super) fn asked(&self, key: VerdictKey, judge: usize) -> Option<&AskedJudge> {
        self.asked.get(&(key, judge))
    }

    /// Follows a record; `None` for one that cannot be.
    pub(super) fn follow(&mut self, record: &JudgingRecord, at: DateTime<Utc>) -> Option<()> {
        match record {
            JudgingRecord::Asked { key, judge, execution, .. } => {
                let asked = AskedJudge { execution: *execution, at, opinion: None };
                self.asked.insert((*key, *judge), asked).is_none().then_some(())
            }
            JudgingRecord::Ended { key, judge, opinion, .. } => {
                let asked = self.asked.get_mut(&(*key, *judge))?;
                asked.opinion.is_none().then(|| asked.opinion = Some(opinion.clone()))
            }
            JudgingRecord::Validated { key, verdict, .. } => {
                self.verdicts.insert(*key, verdict.clone()).is_none().then_some(())
            }
        }
    }

    /// Verdicts by what is judged.
    pub(crate) fn verdicts(&self) -> &BTreeMap<VerdictKey, ValidationVerdict> {
        &self.verdicts
    }

    /// Forgets what is about turns behind a place.
    pub(super) fn drop_behind(&mut self, place: TurnPlace) {
        self.asked.retain(|(key, _), _| place.has(key.turn()));
        self.verdicts.retain(|key, _| place.has(key.turn()));
    }

    /// Steps that the first validator without a verdict needs. `None` when all have passed, or one has not.
    fn steps(
        &self,
        subject: JudgedSubject,
        validators: &[Validator],
    ) -> Option<Vec<ExecutionStep>> {
        let mut keys = (0..validators.len()).map(|validator| VerdictKey { subject, validator });
        let key = keys.find(|key| self.verdicts.get(key).is_none_or(|it| !it.passed))?;
        if self.verdicts.contains_key(&key) {
            return None;
        }
        let judges = judged_by(&validators[key.validator]).map_or(0, |it| it.judges.len());
        let is_open = |judge: &usize| self.asked(key, *judge).is_none_or(|it| it.opinion.is_none());
        let open: Vec<_> =
            (0..judges).filter(is_open).map(|judge| ExecutionStep::Ask(key, judge)).collect();
        Some(if open.is_empty() { vec![ExecutionStep::Weigh(key)] } else { open })
    }

    fn failed(&self, subject: JudgedSubject) -> Option<(VerdictKey, &ValidationVerdict)> {
        let mut verdicts = self.verdicts.iter().map(|(key, verdict)| (*key, verdict));
        verdicts.find(|(key, verdict)| key.subject == subject && !verdict.passed)
    }
}

impl ExecutionState {
    fn validators(&self, subject: JudgedSubject) -> &[Validator] {
        let plan = &self.begun.plan.validation;
        match subject {
            JudgedSubject::Output { .. } => &plan.output,
            JudgedSubject::Call { .. } => &plan.calls,
        }
    }

    pub(super) fn validator(&self, key: VerdictKey) -> Option<&Validator> {
        self.validators(key.subject).get(key.validator)
    }

    /// Judge of whoever ordered the execution.
    pub(super) fn seat(&self, key: VerdictKey, judge: usize) -> Option<&JudgeSeat> {
        let of_output = matches!(key.subject, JudgedSubject::Output { .. });
        self.begun.plan.validation.seat(key.validator, judge).filter(|_| of_output)
    }

    /// Notes a verdict that whoever ordered the execution is told of.
    pub(super) fn note_score(&mut self, record: &JudgingRecord) {
        let JudgingRecord::Validated { key, verdict, .. } = record else { return };
        if self.seat(*key, 0).is_none() || verdict.unavailable {
            return;
        }
        let asked = (0..).map_while(|judge| self.judging.asked(*key, judge));
        let scores = asked.filter_map(|asked| match asked.opinion.as_ref()? {
            JudgeOpinion::Given { score, .. } => Some(*score),
            JudgeOpinion::Failed { .. } => None,
        });
        let (score, confidence) = (verdict.score, verdict.confidence);
        let noted = OrderedScore { score, confidence, scores: scores.collect() };
        self.ordered_score = Some(noted.into());
    }

    fn output(&self) -> Option<JudgedSubject> {
        let (iteration, now) = (self.iterations.len().checked_sub(1)?, self.iteration()?);
        now.output()?;
        Some(JudgedSubject::Output { iteration, turn: now.turns.len().saturating_sub(1) })
    }

    /// True while a verdict is waited for.
    pub(super) fn awaits(&self, key: VerdictKey) -> bool {
        let current = match key.subject {
            // Behind a message there is another output.
            JudgedSubject::Output { .. } => self.output() == Some(key.subject),
            JudgedSubject::Call { .. } => {
                self.iteration().is_some() && self.iterations.len() - 1 == key.iteration()
            }
        };
        self.end.is_none() && self.forks.rewinding().is_none() && current
    }

    /// Steps for judges that were asked and whose answers nobody waits for any more: they are cancelled.
    pub(super) fn forsaken(&self) -> Vec<ExecutionStep> {
        let asked = self.judging.asked.iter();
        let forsaken = asked.filter(|((key, _), it)| it.opinion.is_none() && !self.awaits(*key));
        forsaken.map(|((key, judge), _)| ExecutionStep::Ask(*key, *judge)).collect()
    }

    /// Steps for a call without a result: its judges', or itself.
    pub(super) fn call_steps(&self, key: CallKey) -> Vec<ExecutionStep> {
        // A call that cannot be made is not judged.
        let is_judged = self.call(key).is_some_and(|(asked, _)| {
            asked.arguments.is_object() && asked.tool.as_ref().is_some_and(|tool| !tool.reads)
        });
        let subject = JudgedSubject::Call { key };
        let steps = self.judging.steps(subject, self.validators(subject)).filter(|_| is_judged);
        steps.unwrap_or_else(|| vec![ExecutionStep::Call(key)])
    }

    /// Steps before the output of the iteration is taken; `None` when nothing is left to judge.
    pub(super) fn output_steps(&self, conclusion: &Conclusion) -> Option<Vec<ExecutionStep>> {
        let Conclusion::Ends(ExecutionEnd::Completed { .. }) = conclusion else { return None };
        let subject = self.output()?;
        self.judging.steps(subject, self.validators(subject))
    }

    /// Consequence of a validator that the output does not pass. Another iteration mends no judge.
    pub(super) fn rejected_output(&self) -> Option<Conclusion> {
        let error = self.rejected(self.output()?)?;
        Some(match error.is(codes::JUDGE_UNAVAILABLE) {
            true => Conclusion::Ends(ExecutionEnd::Failed { error: Box::new(error) }),
            false => Conclusion::Fails(error),
        })
    }

    /// Error of the validator that rejected something.
    pub(super) fn rejected(&self, subject: JudgedSubject) -> Option<ToolError> {
        let (key, verdict) = self.judging.failed(subject)?;
        let calls = matches!(subject, JudgedSubject::Call { .. });
        let field = self.begun.plan.validation.field(calls, key.validator);
        let validator = self.validator(key)?;
        let ValidationVerdict { score, confidence, reasons, unavailable, .. } = verdict;
        let reasons = reasons.join("; ");
        if *unavailable {
            let message = format!("no judgment by {field}, so it counts as a rejection: {reasons}");
            let error = ToolError::new(Layer::Actor, codes::JUDGE_UNAVAILABLE, message);
            return Some(error.next("aegis.task.logs of the judge's execution shows what it did"));
        }
        let (min_score, min_confidence) = least(validator);
        let low = match *score < min_score {
            true => format!("score {score:.2}, {min_score:.2} is needed"),
            false => format!("confidence {confidence:.2}, {min_confidence:.2} is needed"),
        };
        let (code, what, next) = match subject {
            JudgedSubject::Output { .. } => {
                (codes::VALIDATION_FAILED, "the output was rejected", "mend what the reasons name")
            }
            JudgedSubject::Call { .. } => {
                let next = "do as the reasons say, or do without the call";
                (codes::CALL_REJECTED, "the call was rejected and not made", next)
            }
        };
        let kind = validation::name(validator);
        let message = format!("{what}: {kind} ({field}): {low}: {reasons}");
        Some(ToolError::new(Layer::Actor, code, message).next(next))
    }

    /// Verdict of a validator all of whose judges have ended.
    pub(super) fn verdict(&self, key: VerdictKey) -> Option<ValidationVerdict> {
        let validator = self.validator(key)?;
        let (min_score, min_confidence) = least(validator);
        let mut unavailable = false;
        let (score, confidence, reasons) = match judged_by(validator) {
            Some(JudgeCheck { judges, consensus: by, required, .. }) => {
                let (mut scores, mut reasons) = (Vec::new(), Vec::new());
                for (at, name) in judges.iter().enumerate() {
                    reasons.push(match self.judging.asked(key, at)?.opinion.as_ref()? {
                        JudgeOpinion::Given { score, confidence, reasoning, .. } => {
                            let (score, confidence) = (*score, *confidence);
                            let weight = self.seat(key, at).map_or(1.0, |seat| seat.weight);
                            scores.push(JudgeScore { score, confidence, weight });
                            format!("{name}: {reasoning}")
                        }
                        JudgeOpinion::Failed { error } => {
                            format!("{name}: {}: {}", error.code, error.message)
                        }
                    });
                }
                unavailable = scores.len() < required;
                let (score, confidence) = match (by, scores.first()) {
                    _ if unavailable => (0.0, 0.0),
                    (None, Some(only)) => (only.score, only.confidence),
                    (by, _) => consensus(&ConsensusRule::new(by?, min_score, required), &scores),
                };
                (score, confidence, reasons)
            }
            None => {
                let iteration = self.iterations.get(key.iteration())?;
                let (output, program) = (iteration.output()?, iteration.program.as_deref());
                let ran = program.map(ProgramEnd::command);
                let last = match &ran {
                    Some(ran) => Ok(ran),
                    None => last_command(iteration),
                };
                let (score, reasons) = validation::score(validator, output, last);
                (score, 1.0, reasons)
            }
        };
        let passed = !unavailable && score >= min_score && confidence >= min_confidence;
        Some(ValidationVerdict { passed, score, confidence, reasons, unavailable })
    }
}

/// Command that an iteration ran last, or why its end is not known.
fn last_command(iteration: &Iteration) -> LastCommand<'_> {
    let calls = iteration.turns.iter().rev().flat_map(|turn| {
        let calls = turn.answer.calls.iter().zip(&turn.results).rev();
        calls.filter_map(|(call, result)| Some((&call.tool.as_ref()?.name, result.as_deref()?)))
    });
    let mut ran = calls.filter(|(tool, result)| is_command(tool) && !result.is_unusable());
    let why = match ran.next() {
        Some((_, CallEnd::Returned { command: Some(ran), .. })) => return Ok(ran),
        None => return Err("no command was run".to_owned()),
        Some((_, CallEnd::Returned { .. })) => "its result has none",
        Some((_, CallEnd::Failed { error })) => &error.message,
        Some((_, CallEnd::Interrupted)) => "the daemon ended during it",
    };
    Err(format!("the last command has no exit code: {why}"))
}
