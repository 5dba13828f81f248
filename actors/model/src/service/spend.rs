//! Reservation and settlement of one request.
//!
//! Sizes are estimates: a token for three bytes of text, as a bound rather than a mean. What the provider
//! counted replaces them. A request that failed before the provider can have worked on it costs nothing; one
//! that was cut costs what was sent, and what was received of the answer.

use hivekeep_kernel::{Layer, SessionId, ToolError};
use hivekeep_ports::{ModelMessage, ModelRequest, ModelSource, ModelUsage};

use super::LanguageModels;
use crate::{
    catalogue::Candidate,
    codes,
    failure::WireFailure,
    ledger::{Amount, Reserved, Settled},
    provider::AnsweredQuestion,
};

/// Bytes of text that make a token, at least.
const TOKEN_BYTES: u64 = 3;
/// Tokens of a message beside its text.
const MESSAGE_TOKENS: u64 = 8;

/// A reservation with what it is for.
pub(super) struct Budget {
    pub(super) reserved: Reserved,
    input_tokens: u64,
}

impl LanguageModels {
    /// Reserves what a question may cost with an answer as long as it may be.
    ///
    /// # Errors
    /// `llm_budget_exceeded`, `llm_price_unknown`.
    pub(super) async fn reserve(
        &self,
        request: &ModelRequest,
        candidate: &Candidate,
        source: &ModelSource,
        max_tokens: u32,
    ) -> Result<Budget, ToolError> {
        let ModelUsage { input_tokens, output_tokens, .. } = worst(request, candidate, max_tokens);
        self.reserve_tokens(request.session, candidate, source, (input_tokens, output_tokens)).await
    }

    /// Reserves what embedding so many bytes may cost.
    ///
    /// # Errors
    /// Same as [`Self::reserve`].
    pub(super) async fn reserve_bytes(
        &self,
        session: SessionId,
        candidate: &Candidate,
        source: &ModelSource,
        bytes: usize,
    ) -> Result<Budget, ToolError> {
        self.reserve_tokens(session, candidate, source, (tokens(bytes), 0)).await
    }

    /// Reserves what so many tokens may cost, read and written.
    ///
    /// # Errors
    /// Same as [`Self::reserve`].
    pub(super) async fn reserve_tokens(
        &self,
        session: SessionId,
        candidate: &Candidate,
        source: &ModelSource,
        (input_tokens, output_tokens): (u64, u64),
    ) -> Result<Budget, ToolError> {
        let cost = cost(candidate, input_tokens, output_tokens);
        if cost.is_none() && self.ledger.bounds_money() {
            let message = format!("money is bounded, and {source} has no price");
            return Err(ToolError::new(Layer::Quota, codes::LLM_PRICE_UNKNOWN, message)
                .next("the operator sets `input_usd` and `output_usd` of the model"));
        }
        let amount = Amount {
            tokens: input_tokens.saturating_add(output_tokens),
            micro_usd: cost.unwrap_or_default(),
        };
        let reserved = self.ledger.reserve(session, source, amount).await?;
        Ok(Budget { reserved, input_tokens })
    }

    /// Settles or releases what a failed request reserved, and tells what it cost.
    ///
    /// # Errors
    /// When the journal stopped.
    pub(super) async fn settle_failure(
        &self,
        budget: Budget,
        candidate: &Candidate,
        source: &ModelSource,
        failure: &WireFailure,
    ) -> Result<Settled, ToolError> {
        if failure.lost == 0 && failure.handed_on == 0 {
            self.ledger.release(budget.reserved);
            return Ok(Settled::default());
        }
        let input_tokens = budget.input_tokens.saturating_mul(failure.lost.max(1).into());
        let output_tokens = tokens(failure.handed_on);
        let micro_usd = cost(candidate, input_tokens, output_tokens).unwrap_or_default();
        let spent = Settled { input_tokens, output_tokens, micro_usd, estimated: true };
        self.ledger.settle(budget.reserved, source, spent).await?;
        Ok(spent)
    }
}

/// Usage of a question whose answer is as long as it may be.
pub(super) fn worst(request: &ModelRequest, candidate: &Candidate, max_tokens: u32) -> ModelUsage {
    let request = &*candidate.tool_form().written(request);
    let messages = request.messages.len() as u64 + 1;
    let input_tokens = tokens(request_bytes(request)) + messages * MESSAGE_TOKENS;
    let output_tokens = max_tokens.into();
    ModelUsage {
        input_tokens,
        output_tokens,
        estimated: true,
        cost_micro_usd: cost(candidate, input_tokens, output_tokens),
    }
}

/// Usage of an answered question, with earlier attempts that may have cost something.
pub(super) fn usage(
    candidate: &Candidate,
    budget: &Budget,
    answered: &AnsweredQuestion,
) -> ModelUsage {
    let end = &answered.end;
    let said = answered.text.len()
        + answered.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>();
    let lost = budget.input_tokens.saturating_mul(answered.lost.into());
    let input_tokens = end.input_tokens.unwrap_or(budget.input_tokens).saturating_add(lost);
    let output_tokens = end.output_tokens.unwrap_or_else(|| tokens(said));
    ModelUsage {
        input_tokens,
        output_tokens,
        estimated: end.input_tokens.is_none() || end.output_tokens.is_none() || lost > 0,
        cost_micro_usd: cost(candidate, input_tokens, output_tokens),
    }
}

/// Usage of a request to embed texts.
pub(super) fn embedded(candidate: &Candidate, budget: &Budget, counted: Option<u64>) -> ModelUsage {
    let input_tokens = counted.unwrap_or(budget.input_tokens);
    ModelUsage {
        input_tokens,
        output_tokens: 0,
        estimated: counted.is_none(),
        cost_micro_usd: cost(candidate, input_tokens, 0),
    }
}

/// Most that a request of so many tokens, read and written, may come to.
pub(super) fn worst_relayed(candidate: &Candidate, (input, output): (u64, u64)) -> ModelUsage {
    ModelUsage {
        input_tokens: input,
        output_tokens: output,
        estimated: true,
        cost_micro_usd: cost(candidate, input, output),
    }
}

/// Usage of an answer of so many bytes that was passed on, by the provider's counts as far as it gives them.
pub(super) fn relayed(
    candidate: &Candidate,
    budget: &Budget,
    (input, output): (Option<u64>, Option<u64>),
    bytes: usize,
) -> ModelUsage {
    let input_tokens = input.unwrap_or(budget.input_tokens);
    let output_tokens = output.unwrap_or_else(|| tokens(bytes));
    ModelUsage {
        input_tokens,
        output_tokens,
        estimated: input.is_none() || output.is_none(),
        cost_micro_usd: cost(candidate, input_tokens, output_tokens),
    }
}

pub(super) fn settled(usage: &ModelUsage) -> Settled {
    Settled {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        micro_usd: usage.cost_micro_usd.unwrap_or_default(),
        estimated: usage.estimated,
    }
}

/// Cost in millionths of a dollar: a dollar for a million tokens is one for each.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn cost(candidate: &Candidate, input_tokens: u64, output_tokens: u64) -> Option<u64> {
    let (read, write) = candidate.price()?;
    Some((input_tokens as f64 * read + output_tokens as f64 * write).ceil() as u64)
}

/// Tokens of so many bytes, at most.
pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(TOKEN_BYTES)
}

/// Bytes of everything that the model reads.
pub(super) fn request_bytes(request: &ModelRequest) -> usize {
    let messages = request.messages.iter().map(|message| match message {
        ModelMessage::User(text) => text.len(),
        ModelMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
            text.len() + calls.sum::<usize>()
        }
        ModelMessage::ToolResult { content, .. } => content.len(),
    });
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len());
    let schema = request.schema.as_ref().map_or(0, |schema| schema.to_string().len());
    let system = request.system.as_ref().map_or(0, String::len);
    messages.chain(tools).sum::<usize>() + schema + system
}
