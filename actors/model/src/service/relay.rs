//! Requests of programs to the provider of their kind: checked, reserved, passed on once, and settled.

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::{
    ModelApi, ModelRelay, ModelSource, ModelUsage, ModelUse, RelayEnd, RelayPiece, RelayRequest,
};
use tokio::sync::{mpsc, oneshot};

use super::{LanguageModels, cut_short, spend};
use crate::{
    catalogue::Candidate,
    codes,
    failure::WireFailure,
    provider::{ProviderJob, Work},
    transport::{RelayedAnswer, speaks},
};

/// Tokens that are reserved for an answer that neither the request nor the model's options bound.
const UNBOUNDED_TOKENS: u64 = 32_000;

#[async_trait]
impl ModelRelay for LanguageModels {
    fn speaks(&self, provider: &str, api: ModelApi) -> bool {
        let provider = self.catalogue.providers.get(provider);
        provider.is_some_and(|provider| speaks(provider.options.kind, api))
    }

    fn worst_case(&self, request: &RelayRequest) -> Result<ModelUsage, ToolError> {
        let candidate = self.relayed_to(request)?;
        Ok(spend::worst_relayed(&candidate, worst_tokens(&candidate, request)))
    }

    async fn relay(
        &self,
        mut request: RelayRequest,
        pieces: mpsc::Sender<RelayPiece>,
    ) -> Result<(ModelSource, RelayEnd), ToolError> {
        let candidate = self.relayed_to(&request)?;
        request.deadline = self.deadline(request.deadline);
        let models = self.clone();
        let (end, answer) = oneshot::channel();
        // Its reservation is settled in any case.
        tokio::spawn(async move {
            let relayed = models.relay_by(&candidate, request, pieces).await;
            let _the_asker_may_have_gone = end.send(relayed);
        });
        let broken = || ToolError::internal("the relay of a request panicked");
        answer.await.unwrap_or_else(|_| Err(broken()))
    }
}

/// Tokens that a request may read and write.
fn worst_tokens(candidate: &Candidate, request: &RelayRequest) -> (u64, u64) {
    let most = request.max_tokens.or(most_tokens(candidate)).unwrap_or(UNBOUNDED_TOKENS);
    (spend::tokens(request.body.len()), most)
}

/// Bound of an answer in the model's options.
fn most_tokens(candidate: &Candidate) -> Option<u64> {
    let model = candidate.provider.options.models.get(&candidate.model)?;
    model.max_output_tokens.map(u64::from)
}

impl LanguageModels {
    /// Model that a request is for, if it may be asked so.
    fn relayed_to(&self, request: &RelayRequest) -> Result<Candidate, ToolError> {
        let generates = ModelUse::Generate;
        let candidate = self.catalogue.named(&request.provider, &request.model, generates)?;
        let (provider, api) = (&request.provider, request.api.word());
        if !self.speaks(provider, request.api) {
            let message = format!("`{provider}` does not speak the API `{api}`");
            return Err(ToolError::new(Layer::Actor, codes::LLM_UNSUPPORTED, message)
                .next("use a provider of that kind"));
        }
        match (request.max_tokens, most_tokens(&candidate)) {
            (Some(asked), Some(most)) if asked > most => {
                let message = format!("{asked} tokens are asked for, {most} are allowed");
                Err(ToolError::invalid(message)
                    .next("the operator raises `max_output_tokens` of the model"))
            }
            _ => Ok(candidate),
        }
    }

    async fn relay_by(
        &self,
        candidate: &Candidate,
        request: RelayRequest,
        pieces: mpsc::Sender<RelayPiece>,
    ) -> Result<(ModelSource, RelayEnd), ToolError> {
        let source = candidate.provider.source(&candidate.model);
        let tokens = worst_tokens(candidate, &request);
        let budget = self.reserve_tokens(request.session, candidate, &source, tokens).await?;
        let (reply, answer) = oneshot::channel();
        let deadline = request.deadline;
        let work = Work::Relay { request: Box::new(request), pieces, reply };
        let relayed = match self.send(candidate, ProviderJob { work, deadline }) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err((cut_short(), 0))),
            Err(failure) => Err((failure, 0)),
        };
        let failed = |failure: WireFailure, handed_on: usize| {
            let lost = u32::from(failure.kind.may_have_cost());
            WireFailure { handed_on, lost: failure.lost.max(lost), attempts: 1, ..failure }
        };
        match relayed {
            Ok((RelayedAnswer { refused: None, input_tokens, output_tokens }, bytes)) => {
                let counted = (input_tokens, output_tokens);
                let usage = spend::relayed(candidate, &budget, counted, bytes);
                self.ledger.settle(budget.reserved, &source, spend::settled(&usage)).await?;
                Ok((source, RelayEnd { whole: true, usage }))
            }
            Ok((RelayedAnswer { refused: Some(failure), .. }, _)) => {
                let failure = failed(failure, 0);
                self.settle_failure(budget, candidate, &source, &failure).await?;
                Ok((source, RelayEnd { whole: false, usage: Default::default() }))
            }
            Err((failure, bytes)) => {
                let failure = failed(failure, bytes);
                self.settle_failure(budget, candidate, &source, &failure).await?;
                Err(failure.error(&source))
            }
        }
    }
}
