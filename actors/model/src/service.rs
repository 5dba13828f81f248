//! Language models as the rest of the daemon uses them: names resolved, budgets kept, answers checked.
//!
//! ```text
//! request ─▶ names ─▶ reserve ─▶ provider's actor ─▶ settle ─▶ checked against its schema ─▶ answer
//!                        ▲            │ failed, nothing handed on, the alias allows it
//!                        └── next ◀───┘
//! ```

mod relay;
mod spend;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Address, Layer, ToolError};
use hivekeep_ports::{
    ConfiguredModel, DELTAS_AHEAD, EmbedRequest, Embeddings, FailedModel, LOST_MICRO_USD,
    LOST_TOKENS, ModelAnswer, ModelDelta, ModelMessage, ModelRequest, ModelSource, ModelStream,
    ModelUsage, ModelUse, Models,
};
use hivekeep_runtime::json_schema::validator;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    Options,
    backend::ModelQuestion,
    catalogue::{Candidate, ModelNames},
    codes,
    failure::WireFailure,
    ledger::{Settled, SpendLedger},
    provider::{self, AnsweredQuestion, ProviderJob, Work},
    text_tools::ModelToolForm,
};

/// Most tokens of an answer where the model has no bound of its own.
const MAX_TOKENS: u32 = 2_048;
/// Largest request.
const REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// Most messages of a conversation.
const MAX_MESSAGES: usize = 4_096;
/// Most tools of a request.
const MAX_TOOLS: usize = 256;
/// Most texts that are embedded at a time.
const MAX_TEXTS: usize = 2_048;

/// Addresses of the providers' actors, by name.
pub(crate) type ProviderAddresses = std::collections::HashMap<String, Address<provider::Msg>>;

/// Language models. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LanguageModels(Arc<ModelsInner>);

pub(crate) struct ModelsInner {
    pub(crate) options: Options,
    pub(crate) catalogue: ModelNames,
    pub(crate) ledger: SpendLedger,
    addresses: ProviderAddresses,
}

impl std::ops::Deref for LanguageModels {
    type Target = ModelsInner;

    fn deref(&self) -> &ModelsInner {
        &self.0
    }
}

impl LanguageModels {
    pub(crate) fn new(
        options: Options,
        catalogue: ModelNames,
        ledger: SpendLedger,
        addresses: ProviderAddresses,
    ) -> Self {
        Self(Arc::new(ModelsInner { options, catalogue, ledger, addresses }))
    }

    /// End of a request that has until `deadline`.
    fn deadline(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + Duration::from_secs(self.options.timeout_secs))
    }

    /// Asks candidates, one after the other, until one answers.
    async fn ask(
        self,
        request: ModelRequest,
        candidates: Vec<Candidate>,
        deltas: mpsc::Sender<ModelDelta>,
    ) -> Result<ModelAnswer, ToolError> {
        let (mut failed, mut lost) = (Vec::<FailedModel>::new(), Settled::default());
        let last = candidates.len().saturating_sub(1);
        for (nth, candidate) in candidates.iter().enumerate() {
            let source = candidate.provider.source(&candidate.model);
            let question = self.question(&request, candidate);
            let budget = self.reserve(&request, candidate, &source, question.max_tokens).await?;
            let form = candidate.tool_form();
            let whole = form != ModelToolForm::Native && !request.tools.is_empty();
            let asked = match whole {
                true => self.put_whole(candidate, question, &deltas, request.deadline).await,
                false => self.put(candidate, question, deltas.clone(), request.deadline).await,
            };
            let failure = match asked {
                Ok(answered) => {
                    let usage = spend::usage(candidate, &budget, &answered);
                    self.ledger.settle(budget.reserved, &source, spend::settled(&usage)).await?;
                    let AnsweredQuestion { text, calls, end, attempts, .. } = answered;
                    let stop = end.stop.unwrap_or(hivekeep_ports::ModelStop::Other);
                    let answer = ModelAnswer {
                        source,
                        text,
                        calls,
                        structured: None,
                        stop,
                        usage,
                        attempts,
                        failed,
                    };
                    let mut answer = form.read(&request, answer);
                    answer.structured = structured(&request, &answer)?;
                    if whole {
                        hand_on(&answer, &deltas).await;
                    }
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            lost.add(self.settle_failure(budget, candidate, &source, &failure).await?);
            let error = failure.error(&source);
            let next_one = nth < last && failure.handed_on == 0 && failure.kind.is_the_providers();
            if !next_one {
                let failed: Vec<_> = failed.iter().map(|it| it.source.to_string()).collect();
                let tokens = lost.input_tokens.saturating_add(lost.output_tokens);
                let error = match tokens {
                    0 => error,
                    _ => error.detail(LOST_TOKENS, tokens).detail(LOST_MICRO_USD, lost.micro_usd),
                };
                return Err(match failed.is_empty() {
                    true => error,
                    false => error.detail("failed_before", failed),
                });
            }
            tracing::warn!(model = %source, code = %error.code, "a model is passed over");
            failed.push(FailedModel { source, error });
        }
        Err(ToolError::internal("an alias without models was resolved"))
    }

    fn question(&self, request: &ModelRequest, candidate: &Candidate) -> ModelQuestion {
        let max_tokens = max_tokens(request, candidate);
        let request = candidate.tool_form().written(request).into_owned();
        ModelQuestion { request, model: candidate.model.clone(), max_tokens }
    }

    /// Puts a question whose answer is handed on when it is whole: the calls in its text are not known before.
    async fn put_whole(
        &self,
        candidate: &Candidate,
        question: ModelQuestion,
        deltas: &mpsc::Sender<ModelDelta>,
        deadline: Instant,
    ) -> Result<AnsweredQuestion, WireFailure> {
        let (pieces, mut read) = mpsc::channel(DELTAS_AHEAD);
        let held_back = async {
            let all = async { while read.recv().await.is_some() {} };
            tokio::select! {
                () = all => {}
                // Nobody waits for the answer any more.
                () = deltas.closed() => {}
            }
            drop(read);
        };
        tokio::join!(self.put(candidate, question, pieces, deadline), held_back).0
    }

    /// Puts a question to the provider's actor.
    async fn put(
        &self,
        candidate: &Candidate,
        question: ModelQuestion,
        deltas: mpsc::Sender<ModelDelta>,
        deadline: Instant,
    ) -> Result<AnsweredQuestion, WireFailure> {
        let (reply, answer) = oneshot::channel();
        let work = Work::Question { question: Box::new(question), deltas, reply };
        self.send(candidate, ProviderJob { work, deadline })?;
        answer.await.unwrap_or_else(|_| Err(cut_short()))
    }

    fn send(&self, candidate: &Candidate, job: ProviderJob) -> Result<(), WireFailure> {
        let address = self.addresses.get(candidate.provider.name.as_str()).ok_or_else(gone)?;
        address.send(provider::Msg::Ask(Box::new(job))).map_err(|_| gone())
    }
}

/// Most tokens of an answer.
fn max_tokens(request: &ModelRequest, candidate: &Candidate) -> u32 {
    let model = candidate.provider.options.models.get(&candidate.model);
    let most = model.and_then(|it| it.max_output_tokens).unwrap_or(MAX_TOKENS);
    request.max_output_tokens.unwrap_or(most).min(most)
}

fn gone() -> WireFailure {
    WireFailure::new(crate::failure::FailureKind::Unavailable, "its actor is not there now")
}

/// The actor ended with the request; whether the provider had begun with it is not known.
fn cut_short() -> WireFailure {
    WireFailure { lost: 1, ..gone() }
}

#[async_trait]
impl Models for LanguageModels {
    fn configured(&self) -> Vec<ConfiguredModel> {
        self.catalogue.providers.values().flat_map(|provider| provider.configured()).collect()
    }

    fn resolve(&self, model: &str, usage: ModelUse) -> Result<Vec<ModelSource>, ToolError> {
        let found = self.catalogue.resolve(model, usage)?;
        Ok(found.iter().map(|it| it.provider.source(&it.model)).collect())
    }

    fn worst_case(&self, request: &ModelRequest) -> Result<ModelUsage, ToolError> {
        let candidates = self.catalogue.resolve(&request.model, ModelUse::Generate)?;
        let each = candidates.iter().map(|it| spend::worst(request, it, max_tokens(request, it)));
        let worst = each.reduce(|one, other| ModelUsage {
            output_tokens: one.output_tokens.max(other.output_tokens),
            cost_micro_usd: one.cost_micro_usd.zip(other.cost_micro_usd).map(|(a, b)| a.max(b)),
            ..one
        });
        worst.ok_or_else(|| ToolError::internal("an alias without models was resolved"))
    }

    fn stream(&self, mut request: ModelRequest) -> Result<ModelStream, ToolError> {
        let candidates = self.catalogue.resolve(&request.model, ModelUse::Generate)?;
        check_request(&request)?;
        request.deadline = self.deadline(request.deadline);
        let (deltas, read) = mpsc::channel(DELTAS_AHEAD);
        let (end, answer) = oneshot::channel();
        let models = self.clone();
        // Goes on for as long as its stream is read; its reservation is settled in any case.
        tokio::spawn(async move {
            let answered = models.ask(request, candidates, deltas).await;
            let _the_asker_may_have_gone = end.send(answered);
        });
        Ok(ModelStream::new(read, answer))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings, ToolError> {
        let candidates = self.catalogue.resolve(&request.model, ModelUse::Embed)?;
        // Vectors of another model would not be comparable, so there is no fallback.
        let candidate = candidates.into_iter().next();
        let candidate = candidate.ok_or_else(|| ToolError::internal("an alias without models"))?;
        check_texts(&request.texts)?;
        let deadline = self.deadline(request.deadline);
        let models = self.clone();
        let (end, answer) = oneshot::channel();
        tokio::spawn(async move {
            let mut end = end;
            let embedded = models.embed_by(&candidate, request, deadline, &mut end).await;
            let _the_asker_may_have_gone = end.send(embedded);
        });
        let cut =
            || ToolError::new(Layer::Actor, hivekeep_kernel::codes::ACTOR_UNAVAILABLE, "it ended");
        answer.await.unwrap_or_else(|_| Err(cut().retryable()))
    }
}

impl LanguageModels {
    async fn embed_by(
        &self,
        candidate: &Candidate,
        request: EmbedRequest,
        deadline: Instant,
        end: &mut oneshot::Sender<Result<Embeddings, ToolError>>,
    ) -> Result<Embeddings, ToolError> {
        let source = candidate.provider.source(&candidate.model);
        let bytes = request.texts.iter().map(String::len).sum();
        let budget = self.reserve_bytes(request.session, candidate, &source, bytes).await?;
        let (reply, answer) = oneshot::channel();
        let (model, texts) = (candidate.model.clone(), request.texts);
        let work = Work::Texts { model, texts, reply };
        let embedded = match self.send(candidate, ProviderJob { work, deadline }) {
            Ok(()) => tokio::select! {
                answer = answer => answer.unwrap_or_else(|_| Err(cut_short())),
                () = end.closed() => Err(WireFailure::cancelled()),
            },
            Err(failure) => Err(failure),
        };
        match embedded {
            Ok((vectors, tokens)) => {
                let usage = spend::embedded(candidate, &budget, tokens);
                self.ledger.settle(budget.reserved, &source, spend::settled(&usage)).await?;
                let dimension = vectors.first().map(Vec::len).unwrap_or_default();
                Ok(Embeddings { source, dimension, vectors, usage })
            }
            Err(failure) => {
                self.settle_failure(budget, candidate, &source, &failure).await?;
                Err(failure.error(&source))
            }
        }
    }
}

/// Checks a request before it is made.
///
/// # Errors
/// `invalid_input`, with what is wrong.
fn check_request(request: &ModelRequest) -> Result<(), ToolError> {
    let wrong = if !(1..=MAX_MESSAGES).contains(&request.messages.len()) {
        format!("a request has 1 to {MAX_MESSAGES} messages")
    } else if matches!(request.messages.last(), Some(ModelMessage::Assistant { .. })) {
        "the last message of a request is not the model's".to_owned()
    } else if spend::request_bytes(request) > REQUEST_BYTES {
        format!("a request is at most {REQUEST_BYTES} bytes")
    } else if request.tools.len() > MAX_TOOLS {
        format!("a request has at most {MAX_TOOLS} tools")
    } else if request.temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) {
        "a temperature is between 0 and 2".to_owned()
    } else if request.max_output_tokens == Some(0) {
        "an answer has at least one token".to_owned()
    } else if let Some(Err(why)) = request.schema.as_ref().map(validator) {
        format!("the schema is not valid: {why:.200}")
    } else {
        return Ok(());
    };
    Err(ToolError::invalid(wrong))
}

/// Checks texts to embed.
///
/// # Errors
/// `invalid_input`, with what is wrong.
fn check_texts(texts: &[String]) -> Result<(), ToolError> {
    let bytes = texts.iter().map(String::len).sum::<usize>();
    match (1..=MAX_TEXTS).contains(&texts.len()) && bytes <= REQUEST_BYTES {
        true => Ok(()),
        false => {
            let bound =
                format!("1 to {MAX_TEXTS} texts of {REQUEST_BYTES} bytes in all are embedded");
            Err(ToolError::invalid(bound))
        }
    }
}

/// Hands a whole answer on, as long as it is read.
async fn hand_on(answer: &ModelAnswer, deltas: &mpsc::Sender<ModelDelta>) {
    let text = Some(answer.text.clone()).filter(|text| !text.is_empty()).map(ModelDelta::Text);
    for delta in text.into_iter().chain(answer.calls.iter().cloned().map(ModelDelta::ToolCall)) {
        if deltas.send(delta).await.is_err() {
            return;
        }
    }
}

/// The text as JSON that matches the request's schema, if it has one. An answer that asks for tools has none.
///
/// # Errors
/// `llm_schema_mismatch`.
fn structured(request: &ModelRequest, answer: &ModelAnswer) -> Result<Option<Value>, ToolError> {
    let ModelAnswer { source, text, stop, .. } = answer;
    let Some(schema) = request.schema.as_ref().filter(|_| answer.calls.is_empty()) else {
        return Ok(None);
    };
    let mismatch = |why: String| {
        let message = format!("the answer of {source} does not match the schema: {why:.300}");
        ToolError::new(Layer::Result, codes::LLM_SCHEMA_MISMATCH, message)
            .next("allow more tokens, ask again, or use a model that keeps to schemas")
            .detail("answer", text.chars().take(400).collect::<String>())
            .detail("stop", stop.word())
    };
    let value: Value = hivekeep_runtime::json_text::from_str(text.trim())
        .map_err(|error| mismatch(format!("it is not JSON: {error}")))?;
    let validator = validator(schema).map_err(mismatch)?;
    let wrong = validator.iter_errors(&value).next().map(|error| error.to_string());
    wrong.map_or(Ok(Some(value)), |why| Err(mismatch(why)))
}
