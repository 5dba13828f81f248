//! Model gateway of a program: what it asks for over HTTP in its machine is asked of the provider once.
//!
//! ```text
//! connection ─▶ read ─▶ allowed? ─▶ answered before? ── yes ─▶ the record
//!                          │no           │no
//!                          ▼             ▼
//!                       refused     recorded ─▶ relay ─▶ shown as it comes ─▶ recorded whole ─▶ its end is shown
//! ```
//! A request is known by its method, target and the JSON of its body. One that comes again while it is being answered is shown the same
//! answer, one whose whole answer is recorded is answered from the record, and one that was cut is asked again. An
//! exchange goes on when its program has gone: the program repeats it. Where it is to be forked, its machine is kept
//! before a request is passed on; in a fork words are put into its requests, which are known without them.

mod conversation;
mod exchange;
#[cfg(test)]
mod fuzzing;
mod listen;
mod mcp;
mod request;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::Utc;
use hivekeep_kernel::{Layer, SessionId, ToolError, codes::BUSY, fault_point, lock};
use hivekeep_ports::{
    GuestHttpAnswer, GuestHttpHandler, GuestHttpRequest, ModelApi, ModelRelay, ModelSource,
    ModelUsage, RELAY_PIECES_AHEAD, RelayEnd, RelayRequest,
};
use hivekeep_runtime::{
    log::{self, Decision, LogError},
    saga::SagaHandle,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    codes,
    execution::{
        ExecutionSaga, ExecutionShared,
        account::{AccountChange, BudgetAmounts, BudgetKind},
        budget::wait_for_budget,
        forks::{ForkRecord, ForkedProgram},
        state::{ExecutionState, KeptAnswer, Record, RelayedTurn},
        tree::BudgetShortage,
    },
};
use exchange::{AnswerHead, ExchangeEnd, ModelExchange};
use request::{GatewayRefusal, ProgramRequest, api_like, key, parse};

pub(crate) use conversation::{ConversationPlace, ConversationWords};
pub(crate) use listen::ProgramListener;

/// Requests that are answered at a time.
const REQUESTS_AT_ONCE: usize = 8;
/// Requests of an execution that are answered from its records.
const MOST_REPLAYS: u64 = 1_000;

/// Bounds of what a program may ask for, and who pays.
#[derive(Debug, Clone)]
pub(crate) struct GatewayTerms {
    pub(crate) api: ModelApi,
    pub(crate) provider: String,
    /// Model of the execution, by the provider's name.
    pub(crate) model: String,
    /// Program that another execution began, in whose fork it runs.
    pub(crate) forked: Option<ForkedProgram>,
    /// Names that the provider has for the models.
    pub(crate) models: BTreeSet<String>,
    pub(crate) payer: SessionId,
    /// Session of the execution's own, in which tools are called.
    pub(crate) child: SessionId,
    /// Longest time of one request.
    pub(crate) limit: Duration,
    /// True if no answer is shown before it is whole.
    pub(crate) whole: bool,
}

/// See the module. Dropped, it cuts what is being asked.
pub(crate) struct Gateway {
    terms: GatewayTerms,
    relay: Arc<dyn ModelRelay>,
    records: SagaHandle<ExecutionSaga>,
    shared: Arc<ExecutionShared>,
    running: Arc<Mutex<HashMap<String, Arc<ModelExchange>>>>,
    places: Arc<Semaphore>,
    /// Place of the one request that is looked for in the records.
    replays: Semaphore,
    /// Place of the one call of a tool that is begun. No machine is kept meanwhile.
    calls: Arc<Semaphore>,
    /// Place of the one checkpoint that is made.
    checkpoints: Arc<Semaphore>,
    /// Answer that was looked for last.
    last: Mutex<Option<(String, Arc<KeptAnswer>)>>,
    end: CancellationToken,
    _cuts: DropGuard,
}

/// Request that is about to be asked.
struct Ask {
    key: String,
    body: Bytes,
    asked: ProgramRequest,
}

#[async_trait]
impl GuestHttpHandler for Gateway {
    async fn answer(&self, request: GuestHttpRequest) -> GuestHttpAnswer {
        if request.target == mcp::PATH {
            return self.mcp(&request).await;
        }
        match self.exchange(&request).await {
            Ok(exchange) => exchange.read(self.terms.api, self.terms.whole).await,
            Err(refusal) => refusal.answer(api_like(&request.target)),
        }
    }

    fn refuse(&self, target: &str, status: u16, why: &str) -> GuestHttpAnswer {
        GatewayRefusal::new(status, "request_refused", why).answer(api_like(target))
    }
}

/// Where an answer comes from.
enum Found {
    Exchange(Arc<ModelExchange>),
    Recorded,
}

impl Gateway {
    pub(crate) fn new(
        terms: GatewayTerms,
        relay: Arc<dyn ModelRelay>,
        records: SagaHandle<ExecutionSaga>,
        shared: Arc<ExecutionShared>,
    ) -> Arc<Self> {
        let end = CancellationToken::new();
        Arc::new(Self {
            terms,
            relay,
            records,
            shared,
            running: Arc::default(),
            places: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)),
            replays: Semaphore::new(1),
            calls: Arc::new(Semaphore::new(1)),
            checkpoints: Arc::new(Semaphore::new(1)),
            last: Mutex::new(None),
            _cuts: end.clone().drop_guard(),
            end,
        })
    }

    async fn exchange(
        &self,
        request: &GuestHttpRequest,
    ) -> Result<Arc<ModelExchange>, GatewayRefusal> {
        let asked = parse(request)?;
        let GatewayTerms { api, models, .. } = &self.terms;
        if asked.api != *api {
            let message = format!("this program's gateway speaks `{}` alone", api.word());
            return Err(GatewayRefusal::new(404, "path_not_allowed", message));
        }
        if !models.contains(&asked.model) {
            let message = format!(
                "`{:.128}` is not one of the models {models:?} of this gateway",
                asked.model
            );
            return Err(GatewayRefusal::new(404, "model_not_allowed", message));
        }
        let key = key(request);
        let ask = Ask { key: key.clone(), body: request.body.clone(), asked };
        match self.find_or_begin(ask)? {
            Found::Exchange(exchange) => Ok(exchange),
            Found::Recorded => self.replay(&key).await,
        }
    }

    /// Finds the exchange of a request, or begins it, unless its answer is recorded. One lock over all of that: no
    /// request is asked twice.
    fn find_or_begin(&self, ask: Ask) -> Result<Found, GatewayRefusal> {
        let mut running = lock(&self.running);
        if let Some(exchange) = running.get(&ask.key) {
            return Ok(Found::Exchange(exchange.clone()));
        }
        if self.records.view(|view| view.state.relayed.is_answered(&ask.key)) {
            return Ok(Found::Recorded);
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let message = format!("{REQUESTS_AT_ONCE} requests are being answered");
            let refusal = GatewayRefusal::new(429, BUSY.name, message);
            return Err(GatewayRefusal { retry_after: Some(1), ..refusal });
        };
        let exchange = ModelExchange::begin();
        running.insert(ask.key.clone(), exchange.clone());
        let end = self.end.clone();
        let work = self.asker().run(ask, exchange.clone(), place);
        tokio::spawn(async move { end.run_until_cancelled(work).await });
        Ok(Found::Exchange(exchange))
    }

    /// Answer that is recorded.
    async fn replay(&self, key: &str) -> Result<Arc<ModelExchange>, GatewayRefusal> {
        let failed = |error: ToolError| GatewayRefusal::of(&error);
        let replayed = self.records.view(|view| view.state.relayed.replayed);
        if replayed >= MOST_REPLAYS {
            let message = format!("{MOST_REPLAYS} requests were answered from the records");
            return Err(GatewayRefusal::new(402, "too_many_repetitions", message));
        }
        // The semaphore is never closed.
        let _one_at_a_time = self.replays.acquire().await;
        let last = lock(&self.last).clone();
        let answer = match last.filter(|(of, _)| of == key) {
            Some((_, answer)) => answer,
            None => Arc::new(self.recorded(key).await.map_err(failed)?),
        };
        *lock(&self.last) = Some((key.to_owned(), answer.clone()));
        let record = Record::ModelReplayed { request: key.to_owned(), at: Utc::now() };
        self.records.record(record).await.map_err(|error| failed(error.into()))?;
        let KeptAnswer { status, content_type, body } = (*answer).clone();
        let head = AnswerHead { status, content_type, retry_after: None };
        Ok(ModelExchange::ended(head, body.into()))
    }

    async fn recorded(&self, key: &str) -> Result<KeptAnswer, ToolError> {
        let id = self.records.view(|view| view.state.begun.id);
        let stream = log::stream::<ExecutionState>(id)
            .map_err(|error| ToolError::internal(error.to_string()))?;
        let records =
            log::read_records::<ExecutionState>(&self.shared.daemon.journal, &stream).await?;
        let answer = records.into_iter().rev().find_map(|record| match record {
            Record::ModelAnswered { turn, answer, .. } if turn.request == key => Some(*answer),
            _ => None,
        });
        answer.ok_or_else(|| ToolError::internal("a recorded answer is not in its stream"))
    }

    fn asker(&self) -> Asker {
        Asker {
            terms: self.terms.clone(),
            relay: self.relay.clone(),
            records: self.records.clone(),
            shared: self.shared.clone(),
            running: self.running.clone(),
            calls: self.calls.clone(),
            checkpoints: self.checkpoints.clone(),
        }
    }
}

/// Reason for which a request is not made now.
enum NotAdmitted {
    Refused(ToolError),
    Short(BudgetShortage),
}

impl From<ToolError> for NotAdmitted {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
}

impl From<LogError> for NotAdmitted {
    fn from(error: LogError) -> Self {
        Self::Refused(error.into())
    }
}

/// Parts of the gateway that an exchange needs when its program has gone.
struct Asker {
    terms: GatewayTerms,
    relay: Arc<dyn ModelRelay>,
    records: SagaHandle<ExecutionSaga>,
    shared: Arc<ExecutionShared>,
    running: Arc<Mutex<HashMap<String, Arc<ModelExchange>>>>,
    calls: Arc<Semaphore>,
    checkpoints: Arc<Semaphore>,
}

impl Asker {
    /// Asks, and records the answer before its end is shown.
    async fn run(self, ask: Ask, exchange: Arc<ModelExchange>, _place: OwnedSemaphorePermit) {
        let key = ask.key.clone();
        let end = self.ask(ask, &exchange).await;
        exchange.end(end);
        lock(&self.running).remove(&key);
    }

    async fn ask(&self, Ask { key, body, asked }: Ask, exchange: &ModelExchange) -> ExchangeEnd {
        let GatewayTerms { forked, model: own, .. } = &self.terms;
        let is_other =
            forked.as_ref().is_some_and(|it| it.model == asked.model && it.model != *own);
        let other = is_other.then(|| own.clone());
        let words = forked.as_ref().map_or(&[][..], |forked| &forked.words);
        let changed = conversation::changed(asked.api, &body, words, other.as_deref());
        let (changed, put_in) = match changed {
            Ok(changed) => changed,
            Err(error) => return ExchangeEnd::Refused(GatewayRefusal::of(&error)),
        };
        let request = RelayRequest {
            session: self.terms.payer,
            api: asked.api,
            provider: self.terms.provider.clone(),
            stream: asked.stream,
            max_tokens: asked.max_tokens,
            headers: asked.headers,
            body: changed,
            model: other.unwrap_or(asked.model),
            deadline: Instant::now(),
        };
        let admitted = async {
            self.admit(&key, &request, put_in).await?;
            Ok(self.keep_machine(&key, asked.api, &body).await?)
        };
        if let Err(error) = admitted.await {
            return ExchangeEnd::Refused(GatewayRefusal::of(&error));
        }
        let request = RelayRequest { deadline: Instant::now() + self.terms.limit, ..request };
        fault_point!("agent.request_recorded");
        let (piece, mut pieces) = mpsc::channel(RELAY_PIECES_AHEAD);
        let reading = async {
            while let Some(piece) = pieces.recv().await {
                exchange.take(piece);
            }
        };
        let (relayed, ()) = tokio::join!(self.relay.relay(request, piece), reading);
        let began = exchange.answer().is_some();
        let recorded = match relayed {
            Ok((source, RelayEnd { whole: true, usage })) => {
                self.keep(key, exchange, &source, usage).await
            }
            Ok(_) => self.fail(key, exchange, None).await.map(|()| ExchangeEnd::Whole),
            Err(error) => {
                let refusal = GatewayRefusal::of(&error);
                let recorded = self.fail(key, exchange, Some(error)).await;
                let end = if began { ExchangeEnd::Cut } else { ExchangeEnd::Refused(refusal) };
                recorded.map(|()| end)
            }
        };
        self.records.view(|view| {
            let state = &view.state;
            self.shared.tree.settle(state.begun.id, &state.account);
        });
        // Without the record nobody may take the answer for whole.
        recorded.unwrap_or(ExchangeEnd::Cut)
    }

    /// Records a request that is about to be made, with what is set aside for it and the number of a fork's words in it,
    /// if its execution may make it. At a bound of the budget it is held until there is more.
    ///
    /// # Errors
    /// `model_price_unknown`, those of [`ExecutionState::may_ask`] and of the model's name; `journal_failed`.
    async fn admit(
        &self,
        key: &str,
        request: &RelayRequest,
        words: usize,
    ) -> Result<(), ToolError> {
        let worst = self.relay.worst_case(request)?;
        let tokens = worst.input_tokens.saturating_add(worst.output_tokens);
        let wanted = BudgetAmounts::turn(tokens, worst.cost_micro_usd);
        let mut news = self.records.watch();
        let decide = |state: &ExecutionState| {
            state.may_ask()?;
            let (id, account, tree) = (state.begun.id, &state.account, &self.shared.tree);
            let bounds_money = tree.bounded(id).contains(&BudgetKind::MicroUsd);
            if bounds_money && worst.cost_micro_usd.is_none() {
                let message = format!("money is bounded, and `{}` has no price", request.model);
                let error = ToolError::new(Layer::Quota, codes::MODEL_PRICE_UNKNOWN, message)
                    .next("bound tokens in place of `usd`; the operator sets the prices");
                return Err(error.into());
            }
            let claimed = tree.claim(id, &account.budget, &account.own().plus(&wanted));
            let total = claimed.map_err(NotAdmitted::Short)?;
            let (request, model, bytes) =
                (key.to_owned(), request.model.clone(), request.body.len());
            let (wanted, at) = (wanted.clone(), Utc::now());
            let asked = Record::ModelAsked { request, model, bytes, words, wanted, at };
            let near = account.budget.nearly_used(&total).into_iter();
            let new = near.filter(|(kind, ..)| !account.warned.contains(kind));
            let warned = new.map(|(kind, used, limit)| {
                Record::account(AccountChange::BudgetWarned { kind, used, limit })
            });
            Ok(warned.fold(Decision::record(asked), Decision::and))
        };
        let mut none_is_kept = None;
        loop {
            match self.records.decide(&decide).await {
                Ok(()) => return Ok(()),
                Err(NotAdmitted::Refused(error)) => return Err(error),
                // A machine that is being kept cannot stand still. Meanwhile there may be enough.
                Err(NotAdmitted::Short(_)) if none_is_kept.is_none() => {
                    none_is_kept = Some(self.checkpoints.acquire().await);
                    continue;
                }
                Err(NotAdmitted::Short(shortage)) => {
                    wait_for_budget(&self.records, &self.shared, shortage).await?;
                }
            }
            none_is_kept = None;
            let goes_on = |state: &ExecutionState| {
                let held = state.account.waiting().is_some() || state.standstill_due().is_some();
                !held || state.end.is_some()
            };
            // The handle keeps it open.
            let _always: bool = news.wait_for(|view| goes_on(&view.state)).await.is_ok();
        }
    }

    /// Keeps the machine with the program that waits for this answer, if that is due. A call of a tool that the program
    /// waits for, too, would be made by each fork again, so there is no checkpoint then.
    async fn keep_machine(&self, key: &str, api: ModelApi, body: &[u8]) -> Result<(), LogError> {
        if self.records.view(|view| view.state.program_checkpoint_due(key).is_none()) {
            return Ok(());
        }
        // Neither semaphore is ever closed.
        let _one_at_a_time = self.checkpoints.acquire().await;
        // Held until the record: no call begins between it, the state and the snapshot.
        let place_of_calls = self.calls.try_acquire();
        let state = self.records.state();
        let Some(place) = state.program_checkpoint_due(key) else { return Ok(()) };
        let made = if place_of_calls.is_err() || mcp::is_calling(&state) || state.stands_still() {
            let message = "the program waited for something else, too";
            let error = ToolError::new(Layer::Actor, BUSY, message)
                .next("fork from another of its requests");
            let error = Some(Box::new(error));
            let (kept, removed, conversation) = Default::default();
            ForkRecord::Checkpointed { place, kept, removed, error, conversation }
        } else {
            let conversation = ConversationPlace::of(api, body);
            self.shared.machines.keep(&state, place, conversation).await
        };
        if matches!(made, ForkRecord::Checkpointed { error: Some(_), .. }) {
            self.shared.unless_closing().await;
        }
        self.records.record(Record::fork(made)).await
    }

    async fn keep(
        &self,
        key: String,
        exchange: &ModelExchange,
        source: &ModelSource,
        usage: ModelUsage,
    ) -> Result<ExchangeEnd, LogError> {
        let Some((head, body)) = exchange.answer() else { return Ok(ExchangeEnd::Cut) };
        // Every API's answers are JSON, in events or not.
        let Ok(body) = String::from_utf8(body) else {
            let message = format!("the answer of {source} is not text");
            let error = ToolError::new(Layer::Result, codes::PROGRAM_ANSWER_UNREADABLE, message);
            return self.fail(key, exchange, Some(error)).await.map(|()| ExchangeEnd::Cut);
        };
        fault_point!("agent.answer_came");
        let AnswerHead { status, content_type, .. } = head;
        let turn = RelayedTurn {
            request: key,
            model: source.to_string(),
            provider_kind: source.provider_kind.to_owned(),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cost_micro_usd: usage.cost_micro_usd,
        };
        let answer = Box::new(KeptAnswer { status, content_type, body });
        self.records.record(Record::ModelAnswered { turn, answer, at: Utc::now() }).await?;
        fault_point!("agent.answer_recorded");
        Ok(ExchangeEnd::Whole)
    }

    async fn fail(
        &self,
        request: String,
        exchange: &ModelExchange,
        error: Option<ToolError>,
    ) -> Result<(), LogError> {
        let status = exchange.answer().map(|(head, _)| head.status);
        let error = error.map(Box::new);
        self.records.record(Record::ModelFailed { request, status, error, at: Utc::now() }).await
    }
}
