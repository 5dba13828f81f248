//! State of the ledger, as its records add up to it.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use hivekeep_kernel::SessionId;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::BudgetPeriod;

/// Most sessions with an account; beyond that the one that spent longest ago is forgotten.
const MAX_SESSIONS: usize = 4_096;
/// Most models with an account.
const MAX_MODELS: usize = 1_024;

/// Record of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum SpendRecord {
    /// A request is about to be made.
    Reserved {
        id: u64,
        session: SessionId,
        provider: String,
        provider_kind: String,
        model: String,
        tokens: u64,
        micro_usd: u64,
        at: DateTime<Utc>,
    },
    /// The request was made, at this cost.
    Settled {
        id: u64,
        input_tokens: u64,
        output_tokens: u64,
        micro_usd: u64,
        estimated: bool,
        at: DateTime<Utc>,
    },
    /// The request cost nothing.
    Released { id: u64 },
    /// The daemon ended before these requests were settled: their reservations count as spent.
    Lost { ids: Vec<u64> },
}

/// Account of a session, of a period, or of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpendAccount {
    /// Requests that were settled or lost.
    pub(crate) requests: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Tokens of requests that are open, or were lost.
    pub(crate) reserved_tokens: u64,
    /// Money, with that of requests that are open or were lost.
    pub(crate) micro_usd: u64,
}

impl SpendAccount {
    /// All tokens.
    pub(crate) fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens).saturating_add(self.reserved_tokens)
    }

    fn reserve(&mut self, open: &OpenRequest) {
        self.reserved_tokens = self.reserved_tokens.saturating_add(open.tokens);
        self.micro_usd = self.micro_usd.saturating_add(open.micro_usd);
    }

    fn give_back(&mut self, open: &OpenRequest) {
        self.reserved_tokens = self.reserved_tokens.saturating_sub(open.tokens);
        self.micro_usd = self.micro_usd.saturating_sub(open.micro_usd);
    }

    fn spend(&mut self, input_tokens: u64, output_tokens: u64, micro_usd: u64) {
        self.requests += 1;
        self.input_tokens = self.input_tokens.saturating_add(input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(output_tokens);
        self.micro_usd = self.micro_usd.saturating_add(micro_usd);
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenRequest {
    session: SessionId,
    model: String,
    tokens: u64,
    micro_usd: u64,
    at: DateTime<Utc>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SessionAccount {
    account: SpendAccount,
    last: DateTime<Utc>,
}

/// Account of the period with this name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PeriodAccount {
    name: String,
    account: SpendAccount,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LedgerState {
    next: u64,
    open: BTreeMap<u64, OpenRequest>,
    sessions: BTreeMap<SessionId, SessionAccount>,
    models: BTreeMap<String, SpendAccount>,
    day: PeriodAccount,
    month: PeriodAccount,
    ever: SpendAccount,
}

impl LedgerState {
    /// Id of the next reservation.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    /// Reservations that are not settled.
    pub(crate) fn open_ids(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// Account of a session.
    pub(crate) fn session(&self, session: SessionId) -> SpendAccount {
        self.sessions.get(&session).map(|it| it.account).unwrap_or_default()
    }

    /// Account of all sessions in a period.
    pub(crate) fn total(&self, period: BudgetPeriod, now: DateTime<Utc>) -> SpendAccount {
        let kept = match period {
            BudgetPeriod::Day => &self.day,
            BudgetPeriod::Month => &self.month,
            BudgetPeriod::Ever => return self.ever,
        };
        if kept.name == name(period, now) { kept.account } else { SpendAccount::default() }
    }

    /// Account of all sessions since the ledger began.
    pub(crate) fn ever(&self) -> SpendAccount {
        self.ever
    }

    /// Accounts of models, by `PROVIDER/MODEL`.
    pub(crate) fn models(&self) -> HashMap<String, SpendAccount> {
        self.models.iter().map(|(name, account)| (name.clone(), *account)).collect()
    }

    /// Changes all accounts that a request counts in. Accounts of a day or month that is over are gone.
    fn each(&mut self, open: &OpenRequest, mut change: impl FnMut(&mut SpendAccount)) {
        for (kept, period) in
            [(&mut self.day, BudgetPeriod::Day), (&mut self.month, BudgetPeriod::Month)]
        {
            let at = name(period, open.at);
            if at > kept.name {
                *kept = PeriodAccount { name: at, account: SpendAccount::default() };
                change(&mut kept.account);
            } else if at == kept.name {
                change(&mut kept.account);
            }
        }
        change(&mut self.ever);
        if self.models.len() < MAX_MODELS || self.models.contains_key(&open.model) {
            change(self.models.entry(open.model.clone()).or_default());
        }
        let session = self.sessions.entry(open.session).or_default();
        session.last = session.last.max(open.at);
        change(&mut session.account);
        if self.sessions.len() > MAX_SESSIONS
            && let Some((&oldest, _)) = self.sessions.iter().min_by_key(|(_, it)| it.last)
        {
            self.sessions.remove(&oldest);
        }
    }
}

/// Name of a period; names sort by time.
fn name(period: BudgetPeriod, at: DateTime<Utc>) -> String {
    match period {
        BudgetPeriod::Day => at.format("%Y-%m-%d").to_string(),
        BudgetPeriod::Month => at.format("%Y-%m").to_string(),
        BudgetPeriod::Ever => String::new(),
    }
}

impl Sourced for LedgerState {
    const KIND: &'static str = "model";
    const FOLD_EVERY: usize = 1_024;
    type Record = SpendRecord;

    fn begin(record: SpendRecord) -> Result<Self, SpendRecord> {
        let mut state = Self::default();
        state.apply(record)?;
        Ok(state)
    }

    fn apply(&mut self, record: SpendRecord) -> Result<(), SpendRecord> {
        match record {
            SpendRecord::Reserved { id, .. } if id != self.next => return Err(record),
            SpendRecord::Reserved {
                id, session, provider, model, tokens, micro_usd, at, ..
            } => {
                let model = format!("{provider}/{model}");
                let open = OpenRequest { session, model, tokens, micro_usd, at };
                self.next = id + 1;
                self.each(&open, |account| account.reserve(&open));
                self.open.insert(id, open);
            }
            SpendRecord::Settled { id, input_tokens, output_tokens, micro_usd, .. } => {
                let Some(open) = self.open.remove(&id) else { return Err(record) };
                self.each(&open, |account| {
                    account.give_back(&open);
                    account.spend(input_tokens, output_tokens, micro_usd);
                });
            }
            SpendRecord::Released { id } => {
                let Some(open) = self.open.remove(&id) else { return Err(record) };
                self.each(&open, |account| account.give_back(&open));
            }
            SpendRecord::Lost { ids } => {
                for id in ids {
                    if let Some(open) = self.open.remove(&id) {
                        self.each(&open, |account| account.requests += 1);
                    }
                }
            }
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}
