//! Ledger of spending: one event-sourced stream, `model/ledger`. A reservation is written before a request
//! and settled after it, so it is not lost with a daemon that dies in between.

mod state;

use std::collections::HashMap;

use chrono::Utc;
use hivekeep_kernel::{Layer, SessionId, ToolError, fault_point};
use hivekeep_ports::ModelSource;
use hivekeep_runtime::{
    Daemon,
    log::{Decision, Log, LogError, stream},
};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

pub(crate) use state::{LedgerState, SpendAccount, SpendRecord};

use crate::{BudgetOptions, BudgetPeriod, codes};

/// Millionths of a US dollar.
const MICRO: f64 = 1e6;

/// Amount of tokens and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) tokens: u64,
    pub(crate) micro_usd: u64,
}

/// Bounds, without those that are not set.
#[derive(Debug, Clone, Copy, Default)]
struct Bound {
    tokens: Option<u64>,
    micro_usd: Option<u64>,
}

pub(crate) struct SpendLedger {
    log: Log<LedgerState>,
    session: Bound,
    total: Bound,
    period: BudgetPeriod,
}

/// A written reservation. A dropped one stays open: the next daemon counts it as spent.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reserved(u64);

/// Tokens and cost of a settled request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) micro_usd: u64,
    pub(crate) estimated: bool,
}

impl Settled {
    /// Adds another request's.
    pub(crate) fn add(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
    }
}

impl SpendLedger {
    /// Opens the ledger. Reservations that a daemon before this one left open are counted as spent, whole: the
    /// provider may have answered, and what it charged is not known.
    ///
    /// # Errors
    /// When the journal cannot be read or written.
    pub(crate) async fn open(daemon: &Daemon, options: &BudgetOptions) -> Result<Self, ToolError> {
        let place = stream::<LedgerState>("ledger");
        let place = place.map_err(|error| ToolError::internal(error.to_string()))?;
        let log = Log::<LedgerState>::open(daemon.journal.clone(), place).await?;
        let open = log.view(|state| state.map(LedgerState::open_ids)).unwrap_or_default();
        if !open.is_empty() {
            tracing::warn!(
                requests = open.len(),
                "requests to models were cut by the daemon's end"
            );
            log.decide::<LogError>(|_| Ok(Decision::record(SpendRecord::Lost { ids: open })))?
                .await?;
        }
        let bound = |tokens: u64, usd: f64| Bound {
            tokens: (tokens > 0).then_some(tokens),
            micro_usd: (usd > 0.0).then(|| micro(usd)),
        };
        Ok(Self {
            log,
            session: bound(options.session_tokens, options.session_usd),
            total: bound(options.total_tokens, options.total_usd),
            period: options.period,
        })
    }

    /// Whether money is bounded, so that each model needs a price.
    pub(crate) fn bounds_money(&self) -> bool {
        self.session.micro_usd.or(self.total.micro_usd).is_some()
    }

    /// Whether money or tokens are bounded.
    fn bounds(&self) -> bool {
        self.bounds_money() || self.session.tokens.or(self.total.tokens).is_some()
    }

    /// Reserves an amount. Where something is bounded, the reservation is on the disk when this returns.
    ///
    /// # Errors
    /// `llm_budget_exceeded`, with what is left.
    pub(crate) async fn reserve(
        &self,
        session: SessionId,
        source: &ModelSource,
        amount: Amount,
    ) -> Result<Reserved, ToolError> {
        let now = Utc::now();
        let mut id = 0;
        let written = self.log.decide::<ToolError>(|state| {
            let empty = LedgerState::default();
            let state = state.unwrap_or(&empty);
            self.fits(state, session, amount, now)?;
            id = state.next_id();
            Ok(Decision::record(SpendRecord::Reserved {
                id,
                session,
                provider: source.provider.clone(),
                provider_kind: source.provider_kind.to_owned(),
                model: source.model.clone(),
                tokens: amount.tokens,
                micro_usd: amount.micro_usd,
                at: now,
            }))
        })?;
        if self.bounds() {
            written.await?;
        }
        fault_point!("model.after_reserved");
        Ok(Reserved(id))
    }

    /// Settles a reservation with what was spent: in memory at once, on the disk when the future completes.
    ///
    /// # Errors
    /// When the journal stopped.
    pub(crate) async fn settle(
        &self,
        reserved: Reserved,
        source: &ModelSource,
        spent: Settled,
    ) -> Result<(), ToolError> {
        fault_point!("model.before_settled");
        let (id, at) = (reserved.0, Utc::now());
        let Settled { input_tokens, output_tokens, micro_usd, estimated } = spent;
        let record =
            SpendRecord::Settled { id, input_tokens, output_tokens, micro_usd, estimated, at };
        let data = json!({
            "provider": source.provider, "provider_kind": source.provider_kind,
            "model": source.model, "input_tokens": input_tokens, "output_tokens": output_tokens,
            "micro_usd": micro_usd, "estimated": estimated,
        });
        let (kind, subject) = ("model.answered".to_owned(), source.to_string());
        let decision = Decision::record(record).event(NewEvent { kind, subject, data });
        let written = self.log.decide::<LogError>(|_| Ok(decision))?;
        written.await?;
        fault_point!("model.after_settled");
        Ok(())
    }

    /// Gives a reservation back: nothing was spent.
    pub(crate) fn release(&self, reserved: Reserved) {
        let record = Decision::record(SpendRecord::Released { id: reserved.0 });
        let (done, _nobody_waits) = oneshot::channel();
        let then = move |outcome| drop(done.send(outcome));
        if let Err(error) = self.log.decide_then::<LogError>(|_| Ok(record), then) {
            tracing::warn!(%error, "a reservation is not given back");
        }
    }

    /// Spending, reservations included: in the period, in all, and by a session.
    pub(crate) fn spent(&self, session: SessionId) -> (SpendAccount, SpendAccount, SpendAccount) {
        self.log.view(|state| {
            let Some(state) = state else { return Default::default() };
            (state.total(self.period, Utc::now()), state.ever(), state.session(session))
        })
    }

    /// Spending by model since the ledger began.
    pub(crate) fn by_model(&self) -> HashMap<String, SpendAccount> {
        self.log.view(|state| state.map(LedgerState::models).unwrap_or_default())
    }

    fn fits(
        &self,
        state: &LedgerState,
        session: SessionId,
        amount: Amount,
        now: chrono::DateTime<Utc>,
    ) -> Result<(), ToolError> {
        for (whose, bound, spent) in [
            ("session", self.session, state.session(session)),
            ("total", self.total, state.total(self.period, now)),
        ] {
            let tokens = (bound.tokens, spent.tokens(), amount.tokens, "tokens");
            let money = (bound.micro_usd, spent.micro_usd, amount.micro_usd, "micro_usd");
            for (most, spent, wanted, unit) in [tokens, money] {
                let Some(most) = most.filter(|most| spent.saturating_add(wanted) > *most) else {
                    continue;
                };
                let left = most.saturating_sub(spent);
                let message = format!(
                    "the request may take {wanted} {unit}, and {left} of {most} are left of the \
                     budget `{whose}`"
                );
                return Err(ToolError::new(Layer::Quota, codes::LLM_BUDGET_EXCEEDED, message)
                    .next("ask for fewer tokens; the operator raises `model.budget`")
                    .detail("budget", whose)
                    .detail("unit", unit)
                    .detail("wanted", wanted)
                    .detail("left", left)
                    .detail("limit", most));
            }
        }
        Ok(())
    }
}

/// Dollars in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn micro(usd: f64) -> u64 {
    (usd * MICRO).ceil() as u64
}

/// Millionths in dollars.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn usd(micro_usd: u64) -> f64 {
    micro_usd as f64 / MICRO
}
