//! Turn of an execution: the conversation so far, put together from the state, the tools of its session, and the
//! answer of the model.

use std::{future::ready, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Effect, ToolError, fault_point};
use hivekeep_ports::{
    ChildTool, LOST_MICRO_USD, LOST_TOKENS, ModelAnswer, ModelMessage, ModelRequest, ModelStop,
    ModelTool, ModelToolCall, ModelToolChoice,
};
use hivekeep_runtime::log::{Decision, LogError};
use tokio::time::Instant;

use super::{
    ExecutionSaga,
    account::BudgetAmounts,
    digest::RequestDigest,
    forks::TurnKey,
    repeated,
    state::{AskedCall, CallEnd, CalledTool, ExecutionState, Record, TurnAnswer, TurnStop},
};

/// Most calls of one answer; those behind them are dropped.
const MOST_CALLS: usize = 64;
/// Number of attempts at a model that does not answer, with longer and longer pauses.
const ATTEMPTS: u32 = 5;
/// First of these pauses.
const PAUSE: Duration = Duration::from_secs(1);
const STOPPED: &str = "stopped: a person ended this turn. Whether the call took effect is not known: look before you \
    make it again.";

impl ExecutionSaga {
    /// Asks the model, and records its answer or the end that a failure is.
    pub(super) async fn turn(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let asked = self.ask_model(&state, |tools, deadline| request(&state, tools, deadline));
        let Some(answered) = self.unless_stopped(&state, asked).await else { return Ok(()) };
        let (iteration, turn) = state.next_turn();
        match answered {
            Ok(Some((answer, tools))) => {
                let messages_read = state.account.messages.len();
                let request = Some(RequestDigest::of(&request(&state, &tools, Instant::now())));
                let kept = kept(answer, &tools);
                let answer = Box::new(TurnAnswer { messages_read, request, ..kept });
                let record = Record::Answered { iteration, turn, answer, at: Utc::now() };
                fault_point!("agent.turn_answered");
                self.record_answer(record).await?;
                fault_point!("agent.turn_recorded");
                Ok(())
            }
            // Its wait is recorded.
            Ok(None) => Ok(()),
            Err(error) => self.unanswered(&state, error).await,
        }
    }

    /// Outcome of a request, unless the execution is cancelled or stopped before: that is recorded.
    pub(super) async fn unless_stopped<T>(
        &self,
        state: &ExecutionState,
        asked: impl Future<Output = T>,
    ) -> Option<T> {
        let asked = self.handle.cancelled().run_until_cancelled(asked);
        tokio::select! {
            answered = asked => answered,
            () = self.stopped(state.next_turn().0) => None,
        }
    }

    /// Records an answer, unless its iteration was stopped.
    pub(super) async fn record_answer(&self, record: Record) -> Result<(), LogError> {
        let decide = |state: &ExecutionState| {
            Ok(match state.iteration() {
                Some(_) => Decision::record(record),
                None => Decision::nothing(),
            })
        };
        self.handle.decide::<LogError>(decide).await?;
        self.settle();
        Ok(())
    }

    /// Records what the failure of a request comes to.
    pub(super) async fn unanswered(
        &self,
        state: &ExecutionState,
        error: ToolError,
    ) -> Result<(), LogError> {
        match self.left(state) {
            Err(over) => self.out_of_time(over).await,
            Ok(_) => match self.time_left(state) {
                Some((left, shortage)) if left.is_zero() => self.wait(shortage).await,
                _ if state.begun.plan.chat.is_some() => {
                    self.unless_closing().await;
                    self.fail_iteration(error).await
                }
                _ => self.fail(error).await,
            },
        }
    }

    /// Asks until the model answers, as long as its failures pass and there is time; nothing if the budget is not
    /// enough.
    pub(super) async fn ask_model(
        &self,
        state: &ExecutionState,
        request: impl Fn(&[ChildTool], Instant) -> ModelRequest,
    ) -> Result<Option<(ModelAnswer, Vec<ChildTool>)>, ToolError> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        // A request that a daemon before this one made may have been answered, and paid.
        let mut lost = state.account.reserved().clone();
        loop {
            let left = self.left(state).map_err(|(_, error)| error)?;
            let child = Self::child(state);
            let cancelled = self.handle.cancelled();
            let mut tools =
                repeated(cancelled, || ready(self.shared.children.tools(child))).await?;
            tools.retain(|tool| state.begun.plan.offers(tool));
            let left = self.time_left(state).map_or(left, |(budget, _)| budget.min(left));
            let limit = Duration::from_secs(state.begun.plan.limits.model_secs).min(left);
            let request = request(&tools, Instant::now() + limit);
            if !self.reserve_turn(&request, &lost).await? {
                return Ok(None);
            }
            match self.shared.models.generate(request).await {
                Err(error) if error.retryable && attempt < ATTEMPTS && left > pause => {
                    lost = lost_by(&error);
                    let asked = error.retry_after_ms.map(Duration::from_millis);
                    tokio::time::sleep(asked.unwrap_or_default().max(pause).min(left)).await;
                    attempt += 1;
                    pause *= 2;
                }
                answered => return answered.map(|answer| Some((answer, tools))),
            }
        }
    }
}

/// Amounts that a request cost although it failed.
fn lost_by(error: &ToolError) -> BudgetAmounts {
    let amount = |name| error.details.get(name).and_then(serde_json::Value::as_u64);
    BudgetAmounts::turn(amount(LOST_TOKENS).unwrap_or(0), amount(LOST_MICRO_USD))
}

/// Request of the next turn.
pub(super) fn request(
    state: &ExecutionState,
    tools: &[ChildTool],
    deadline: Instant,
) -> ModelRequest {
    let plan = &state.begun.plan;
    let tool = |tool: &ChildTool| ModelTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
    };
    ModelRequest {
        session: state.begun.payer,
        model: plan.model.clone(),
        system: None,
        messages: conversation(state, None),
        tools: tools.iter().map(tool).collect(),
        tool_choice: ModelToolChoice::Auto,
        schema: None,
        temperature: plan.temperature,
        max_output_tokens: None,
        stop: Vec::new(),
        deadline,
    }
}

/// Conversation of the iteration that goes on, in a chat of all of them: each call with its result, and each message of
/// a person where the model read it. Those of iterations before stand behind the prompt. What was replaced is a summary.
/// It ends before a turn, where one is given.
pub(super) fn conversation(state: &ExecutionState, end: Option<TurnKey>) -> Vec<ModelMessage> {
    let first = state.first_shown();
    let summary = state.compaction.shown(first);
    let said = |from: usize, to: usize| {
        let said = state.account.messages.get(from..to).unwrap_or_default().iter();
        said.map(|message| ModelMessage::User(message.text.clone()))
    };
    let (mut messages, mut read) = (Vec::new(), 0);
    for (number, iteration) in state.iterations.iter().enumerate().skip(first) {
        let prompt = Some(iteration.prompt.to_string()).filter(|prompt| !prompt.is_empty());
        messages.extend(prompt.map(ModelMessage::User));
        for (nth, turn) in iteration.turns.iter().enumerate() {
            let place = (number, nth);
            if end.is_some_and(|end| place >= end) {
                return messages;
            }
            match &summary {
                Some((from, _)) if place < *from => {
                    read = read.max(turn.answer.messages_read);
                    continue;
                }
                Some((from, text)) if place == *from => {
                    messages.push(ModelMessage::User(text.clone()))
                }
                _ => {}
            }
            messages.extend(said(read, turn.answer.messages_read));
            read = read.max(turn.answer.messages_read);
            let calls: Vec<_> = turn.answer.calls.iter().map(asked).collect();
            let text = turn.answer.text.clone();
            messages.push(ModelMessage::Assistant { text, calls: calls.clone() });
            let results = calls.into_iter().zip(&turn.results);
            messages.extend(results.map(|(call, result)| {
                let stopped = || (STOPPED.to_owned(), true);
                let (content, is_error) = result.as_deref().map_or_else(stopped, CallEnd::shown);
                ModelMessage::ToolResult { call, content, is_error }
            }));
        }
    }
    messages.extend(said(read, state.account.messages.len()));
    messages
}

fn asked(call: &AskedCall) -> ModelToolCall {
    let AskedCall { id, name, arguments, signature, .. } = call.clone();
    ModelToolCall { id, name, arguments, signature }
}

/// Tool that is called by a name.
pub(crate) fn called_tool(name: &str, tools: &[ChildTool]) -> Option<CalledTool> {
    let plain = |name: &str| name.replace('.', "_");
    let name = plain(name);
    let tool = tools.iter().find(|tool| plain(&tool.name) == name)?;
    Some(CalledTool {
        name: tool.declared.to_owned(),
        repeatable: matches!(tool.effect, Effect::Read | Effect::Idempotent),
        // A model that asks for an edit and for a test behind it means that order.
        beside_others: tool.concurrency_safe && tool.effect == Effect::Read,
        reads: tool.effect == Effect::Read,
    })
}

/// Answer as it is recorded. A tool is known by the name that the model was told, or by the declared one.
pub(super) fn kept(answer: ModelAnswer, tools: &[ChildTool]) -> TurnAnswer {
    let call = |call: ModelToolCall| AskedCall {
        tool: called_tool(&call.name, tools),
        id: call.id,
        name: call.name,
        arguments: call.arguments,
        signature: call.signature,
    };
    TurnAnswer {
        calls_dropped: answer.calls.len().saturating_sub(MOST_CALLS),
        calls: answer.calls.into_iter().take(MOST_CALLS).map(call).collect(),
        text: answer.text,
        stop: match answer.stop {
            ModelStop::MaxTokens => TurnStop::CutShort,
            ModelStop::Refused => TurnStop::Refused,
            ModelStop::End | ModelStop::StopSequence | ModelStop::ToolCalls | ModelStop::Other => {
                TurnStop::Done
            }
        },
        model: answer.source.to_string(),
        provider_kind: answer.source.provider_kind.to_owned(),
        input_tokens: answer.usage.input_tokens,
        output_tokens: answer.usage.output_tokens,
        cost_micro_usd: answer.usage.cost_micro_usd,
        messages_read: 0,
        request: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_change_nothing_are_made_beside_others() {
        for (effect, concurrency_safe, beside_others) in [
            (Effect::Read, true, true),
            (Effect::Read, false, false),
            (Effect::Write, true, false),
            (Effect::Idempotent, true, false),
            (Effect::Destroy, true, false),
        ] {
            let tool = ChildTool {
                name: "fs_edit".to_owned(),
                declared: "fs.edit",
                description: String::new(),
                input_schema: serde_json::Value::Null,
                effect,
                concurrency_safe,
            };
            let called = called_tool("fs.edit", &[tool]).expect("it is known");
            assert_eq!(called.beside_others, beside_others, "{effect:?}");
        }
    }
}
