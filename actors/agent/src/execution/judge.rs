//! Judges: agents that are asked what an output, or a call before it is made, is worth.
//!
//! A judge is asked by an execution of its own, whose session is below that of the execution which asks. Its id is
//! recorded before it is begun, so that a daemon which dies finds it again. Its end, of whatever kind, is recorded;
//! when nobody waits for it any more it is cancelled.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{ExecutionId, Layer, ToolError};
use hivekeep_manifest::common::JsonObject;
use hivekeep_runtime::{
    json_text,
    log::{Decision, LogError},
    runs::{RunCaller, WeakRuns},
    saga::{SagaState, SagaView},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ExecutionSaga,
    judging::{AskedJudge, JudgeOpinion, JudgedSubject, JudgingRecord, VerdictKey},
    plan::{ExecutionPlan, JudgePlan, checked_input},
    state::{ExecutionBegun, ExecutionEnd, ExecutionState, Record},
    validation::{self, JudgeCheck, judged_by},
};
use crate::codes;

/// Most bytes of a judge's reasoning that are kept beside its own execution.
const REASONING_BYTES: usize = 4 * 1024;

/// Answer of a judge. Further keys are passed over.
#[derive(Deserialize)]
struct JudgeAnswer {
    score: f64,
    confidence: f64,
    reasoning: String,
    #[serde(default)]
    signals: Vec<Value>,
    metadata: Option<JsonObject>,
}

impl ExecutionSaga {
    /// Asks a judge, or waits on for one that was asked, and records how it ended.
    pub(super) async fn ask(&self, key: VerdictKey, judge: usize) -> Result<(), LogError> {
        let asks = move |state: &ExecutionState| {
            let check = state.validator(key).and_then(judged_by);
            let agent = check.and_then(|it| it.judges.get(judge).cloned());
            Ok(match agent {
                Some(agent) if state.awaits(key) && state.judging.asked(key, judge).is_none() => {
                    let execution = ExecutionId::new();
                    let about = JudgingRecord::Asked { key, judge, agent, execution };
                    Decision::record(Record::Judging { about: Box::new(about), at: Utc::now() })
                }
                _ => Decision::nothing(),
            })
        };
        self.handle.decide::<LogError>(asks).await?;
        let state = self.handle.state();
        let Some(asked) = state.judging.asked(key, judge) else { return Ok(()) };
        let execution = asked.execution;
        let ended = self.judged(&state, key, judge, asked).await;
        let opinion = ended
            .and_then(|view| opinion(&view))
            .unwrap_or_else(|error| JudgeOpinion::Failed { error: Box::new(error) });
        if matches!(opinion, JudgeOpinion::Failed { .. }) {
            self.unless_closing().await;
        }
        let about = Box::new(JudgingRecord::Ended { key, judge, execution, opinion });
        self.handle.record(Record::Judging { about, at: Utc::now() }).await
    }

    /// Waits for the end of a judge, which is begun unless it was before. Cut short at its time limit, and when
    /// nobody waits for the verdict any more.
    async fn judged(
        &self,
        state: &ExecutionState,
        key: VerdictKey,
        judge: usize,
        asked: &AskedJudge,
    ) -> Result<SagaView<Self>, ToolError> {
        let runs = self.shared.runs.get().and_then(WeakRuns::upgrade);
        let runs = runs.ok_or_else(ToolError::daemon_stopping)?;
        let check = state.validator(key).and_then(judged_by);
        let check = check.ok_or_else(|| ToolError::internal("the plan has no such validator"))?;
        let own = state.seat(key, judge).and_then(|seat| seat.criteria.as_deref());
        let check = JudgeCheck { criteria: own.unwrap_or(check.criteria), ..check };
        let (name, id) = (&check.judges[judge], asked.execution.to_string());
        let caller = RunCaller { user: state.begun.user, operator: false };
        if runs.get(caller, &id).is_err() {
            if !state.awaits(key) {
                return Err(ToolError::cancelled());
            }
            let begun = Box::new(judge_begun(state, key, name, &check, asked.execution)?);
            runs.begin(asked.execution, Record::Begun(begun)).await?;
        }
        let limit = Duration::from_secs(check.timeout_secs);
        let left = limit.saturating_sub(self.clock.since(asked.at, Utc::now()));
        let left = left.min(self.left(state).unwrap_or_default());
        let mut news = self.handle.watch();
        tokio::select! {
            biased;
            ended = runs.ended(caller, &id) => return ended,
            // The handle keeps it open.
            _ = news.wait_for(|view| !view.state.awaits(key)) => {}
            () = tokio::time::sleep(left) => {}
        }
        runs.cancel(caller, &id).await?;
        let ended = runs.ended(caller, &id).await?;
        // The judge may have answered meanwhile.
        if !ended.state.is_cancelled() || !self.handle.state().awaits(key) {
            return Ok(ended);
        }
        let most = check.timeout_secs;
        let message = format!("the judge `{name}` gave no answer in time, {most} s at most");
        Err(ToolError::new(Layer::Actor, codes::TIME_EXHAUSTED, message)
            .next("raise `timeout_seconds` of the validator, or the times of the execution"))
    }

    /// Records the verdict of a validator.
    pub(super) async fn weigh(&self, key: VerdictKey) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some((validator, verdict)) = state.validator(key).zip(state.verdict(key)) else {
            return Ok(());
        };
        let is_output = matches!(key.subject, JudgedSubject::Output { .. });
        if verdict.unavailable
            && is_output
            && let Err(over) = self.left(&state)
        {
            return self.out_of_time(over).await;
        }
        let kind = validation::name(validator).to_owned();
        let about = Box::new(JudgingRecord::Validated { key, kind, verdict });
        self.handle.record(Record::Judging { about, at: Utc::now() }).await
    }
}

/// First record of a judge's execution: its session is below that of the execution which asks, and whoever pays for
/// that pays for it.
fn judge_begun(
    state: &ExecutionState,
    key: VerdictKey,
    name: &str,
    check: &JudgeCheck<'_>,
    id: ExecutionId,
) -> Result<ExecutionBegun, ToolError> {
    let nothing = || ToolError::internal("there is nothing to be judged");
    let judge = state.begun.plan.judges.get(name).ok_or_else(nothing)?;
    let iteration = state.iteration().ok_or_else(nothing)?;
    let mut question = JsonObject::new();
    question.insert("criteria".to_owned(), json!(check.criteria));
    question.insert("task".to_owned(), json!(iteration.prompt));
    match key.subject {
        JudgedSubject::Output { .. } => {
            let output = iteration.output().ok_or_else(nothing)?;
            question.insert("output".to_owned(), json!(output));
        }
        JudgedSubject::Call { key } => {
            let (asked, _) = state.call(key).ok_or_else(nothing)?;
            question.insert("tool".to_owned(), json!(asked.tool.as_ref().map(|it| &it.name)));
            question.insert("arguments".to_owned(), asked.arguments.clone());
        }
    }
    Ok(ExecutionBegun {
        id,
        user: state.begun.user,
        session: ExecutionSaga::child(state),
        payer: state.begun.payer,
        parent: Some(state.begun.id),
        judges: true,
        counts_calls: state.counts_calls(),
        plan: judge.asked(question)?,
        at: Utc::now(),
    })
}

/// Opinion that the end of a judge is.
fn opinion(view: &SagaView<ExecutionSaga>) -> Result<JudgeOpinion, ToolError> {
    match view.state.end.as_deref() {
        Some(ExecutionEnd::Completed { output }) => answer(output),
        Some(ExecutionEnd::Failed { error }) => Err((**error).clone()),
        Some(ExecutionEnd::Cancelled) => Err(ToolError::cancelled()),
        None => Err(stands_still(view)),
    }
}

/// Error of an execution that is given up.
pub(crate) fn stands_still(view: &SagaView<ExecutionSaga>) -> ToolError {
    let why = view.given_up.as_deref().unwrap_or("it is not over");
    let message = format!("it stands still until the daemon's next start: {why}");
    ToolError::new(Layer::Actor, codes::EXECUTION_GIVEN_UP, message)
}

fn answer(output: &str) -> Result<JudgeOpinion, ToolError> {
    let invalid = |why: String| {
        let message = format!("the judge's output is not a judgment: {why}");
        ToolError::new(Layer::Actor, codes::JUDGE_ANSWER_INVALID, message)
            .next("have the judge answer with an object of `score`, `confidence` and `reasoning`")
    };
    let object = serde_json::from_str::<JsonObject>(json_text::without_fence(output));
    let read = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    let JudgeAnswer { score, confidence, mut reasoning, signals, metadata } =
        read.map_err(|error| invalid(error.to_string()))?;
    for (name, share) in [("score", score), ("confidence", confidence)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(invalid(format!("`{name}` is {share}, not a number from 0 to 1")));
        }
    }
    if reasoning.trim().is_empty() {
        return Err(invalid("`reasoning` is empty".to_owned()));
    }
    reasoning.truncate(reasoning.floor_char_boundary(REASONING_BYTES));
    Ok(JudgeOpinion::Given { score, confidence, reasoning, signals, metadata })
}

impl JudgePlan {
    /// Plan of an execution that answers a question.
    ///
    /// # Errors
    /// `input_invalid`, `agent_prompt_invalid`.
    pub(super) fn asked(&self, question: JsonObject) -> Result<ExecutionPlan, ToolError> {
        let Self { plan, input_schema } = self;
        let input = checked_input(plan.input.clone(), input_schema.as_ref(), question)?;
        let plan = ExecutionPlan { input, ..plan.clone() };
        plan.prompt(1, None)?;
        Ok(plan)
    }

    /// Tells whether the judge takes questions about outputs, and about calls if it is to judge those.
    ///
    /// # Errors
    /// As when it is asked.
    pub(crate) fn check(&self, calls: bool) -> Result<(), ToolError> {
        let question = match calls {
            true => {
                json!({ "criteria": "criteria", "task": "task", "tool": "tool", "arguments": {} })
            }
            false => json!({ "criteria": "criteria", "task": "task", "output": "output" }),
        };
        self.asked(question.as_object().cloned().unwrap_or_default()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgment_is_read_as_it_is_declared_or_not_at_all() {
        let given = |score, confidence, reasoning: &str| JudgeOpinion::Given {
            score,
            confidence,
            reasoning: reasoning.to_owned(),
            signals: Vec::new(),
            metadata: None,
        };
        let plain = r#"{ "score": 1, "confidence": 0.5, "reasoning": "Good.", "verdict": "pass" }"#;
        for text in
            [plain.to_owned(), format!("\n```json\n{plain}\n```\n"), format!("```\n{plain}```")]
        {
            assert_eq!(answer(&text).as_ref(), Ok(&given(1.0, 0.5, "Good.")), "{text}");
        }
        let long = "ä".repeat(REASONING_BYTES);
        let text = json!({ "score": 0, "confidence": 1, "reasoning": long, "signals": [1], "metadata": { "a": 2 } });
        let Ok(JudgeOpinion::Given { reasoning, signals, metadata, .. }) =
            answer(&text.to_string())
        else {
            panic!("it is one")
        };
        assert_eq!(
            (reasoning.len(), signals, metadata.map(|it| it.len())),
            (REASONING_BYTES, vec![json!(1)], Some(1))
        );
        for bad in [
            "",
            "Good.",
            "[0.9, 1, \"Good.\", [], null]",
            "{}",
            r#"{ "score": 0.9, "confidence": 1 }"#,
            r#"{ "score": 0.9, "confidence": 1, "reasoning": " " }"#,
            r#"{ "score": "0.9", "confidence": 1, "reasoning": "Good." }"#,
            r#"{ "score": 1.1, "confidence": 1, "reasoning": "Good." }"#,
            r#"{ "score": 0.9, "confidence": -0.1, "reasoning": "Good." }"#,
            r#"{ "score": 0.9, "confidence": 1, "reasoning": "Good.", "signals": "none" }"#,
            r#"Sure: { "score": 0.9, "confidence": 1, "reasoning": "Good." }"#,
        ] {
            let refused = answer(bad).expect_err(bad);
            assert!(
                refused.is(codes::JUDGE_ANSWER_INVALID) && refused.next_step.is_some(),
                "{bad}"
            );
        }
    }
}
