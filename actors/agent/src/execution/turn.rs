//! Turn of an execution: the conversation so far, put together from the state, the tools of its session, and the
//! answer of the model.

use std::{collections::HashMap, future::ready, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Effect, ToolError};
use hivekeep_ports::{
    ChildTool, ModelAnswer, ModelMessage, ModelRequest, ModelStop, ModelTool, ModelToolCall,
    ModelToolChoice,
};
use hivekeep_runtime::log::LogError;
use tokio::time::Instant;

use super::{
    ExecutionSaga,
    call::shown,
    repeated,
    state::{AskedCall, CalledTool, ExecutionState, Iteration, Record, TurnAnswer, TurnStop},
};

/// Most calls of one answer; those behind them are dropped.
const MOST_CALLS: usize = 64;
/// Number of attempts at a model that does not answer, with longer and longer pauses.
const ATTEMPTS: u32 = 5;
/// First of these pauses.
const PAUSE: Duration = Duration::from_secs(1);

impl ExecutionSaga {
    /// Asks the model, and records its answer or the end that a failure is.
    pub(super) async fn turn(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let answered = self.handle.cancelled().run_until_cancelled(self.ask(&state)).await;
        // Cancelled: that is recorded.
        let Some(answered) = answered else { return Ok(()) };
        let (iteration, turn) = match state.iteration() {
            Some(now) => (state.iterations.len() - 1, now.turns.len()),
            None => return Ok(()),
        };
        match answered {
            Ok((answer, tools)) => {
                let answer = Box::new(kept(answer, &tools));
                let record = Record::Answered { iteration, turn, answer, at: Utc::now() };
                self.handle.record(record).await
            }
            Err(error) => match self.left(&state) {
                Err(over) => self.out_of_time(over).await,
                Ok(_) => self.fail(error).await,
            },
        }
    }

    /// Asks until the model answers, as long as its failures pass and there is time.
    async fn ask(
        &self,
        state: &ExecutionState,
    ) -> Result<(ModelAnswer, Vec<ChildTool>), ToolError> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let left = self.left(state).map_err(|(_, error)| error)?;
            let child = Self::child(state);
            let cancelled = self.handle.cancelled();
            let tools = repeated(cancelled, || ready(self.shared.children.tools(child))).await?;
            let limit = Duration::from_secs(state.begun.plan.limits.model_secs).min(left);
            let request = request(state, &tools, Instant::now() + limit);
            match self.shared.models.generate(request).await {
                Err(error) if error.retryable && attempt < ATTEMPTS && left > pause => {
                    let asked = error.retry_after_ms.map(Duration::from_millis);
                    tokio::time::sleep(asked.unwrap_or_default().max(pause).min(left)).await;
                    attempt += 1;
                    pause *= 2;
                }
                answered => return answered.map(|answer| (answer, tools)),
            }
        }
    }
}

/// Request of the next turn.
fn request(state: &ExecutionState, tools: &[ChildTool], deadline: Instant) -> ModelRequest {
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
        messages: state.iteration().map(|now| conversation(now)).unwrap_or_default(),
        tools: tools.iter().map(tool).collect(),
        tool_choice: ModelToolChoice::Auto,
        schema: None,
        temperature: plan.temperature,
        max_output_tokens: None,
        stop: Vec::new(),
        deadline,
    }
}

/// Conversation of an iteration, each call with its result.
fn conversation(iteration: &Iteration) -> Vec<ModelMessage> {
    let mut messages = vec![ModelMessage::User(iteration.prompt.to_string())];
    for turn in &iteration.turns {
        let calls: Vec<_> = turn.answer.calls.iter().map(asked).collect();
        let text = turn.answer.text.clone();
        messages.push(ModelMessage::Assistant { text, calls: calls.clone() });
        let results = calls.into_iter().zip(&turn.results);
        messages.extend(results.filter_map(|(call, result)| {
            let (content, is_error) = shown(result.as_deref()?);
            Some(ModelMessage::ToolResult { call, content, is_error })
        }));
    }
    messages
}

fn asked(call: &AskedCall) -> ModelToolCall {
    let AskedCall { id, name, arguments, signature, .. } = call.clone();
    ModelToolCall { id, name, arguments, signature }
}

/// Answer as it is recorded. A tool is known by the name that the model was told, or by the declared one.
fn kept(answer: ModelAnswer, tools: &[ChildTool]) -> TurnAnswer {
    let plain = |name: &str| name.replace('.', "_");
    let known: HashMap<_, _> = tools.iter().map(|tool| (plain(&tool.name), tool)).collect();
    let called = |tool: &&ChildTool| CalledTool {
        name: tool.declared.to_owned(),
        repeatable: matches!(tool.effect, Effect::Read | Effect::Idempotent),
        beside_others: tool.concurrency_safe,
    };
    let call = |call: ModelToolCall| AskedCall {
        tool: known.get(&plain(&call.name)).map(called),
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
    }
}
