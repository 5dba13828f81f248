//! Account of an execution: its budget, what it used, who it waits for, what people say to it and its children, as its
//! records add up.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ExecutionId, Layer, ToolError, User};
use hivekeep_manifest::agent::AgentBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::codes;

/// Hundredths of a bound at which a warning is recorded.
const WARN_AT: u64 = 80;
/// Millionths of a US dollar.
const MICRO: f64 = 1e6;

/// Kind of amount that a budget bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BudgetKind {
    MicroUsd,
    Tokens,
    WallSecs,
    ToolCalls,
}

impl BudgetKind {
    pub(crate) const ALL: [Self; 4] =
        [Self::MicroUsd, Self::Tokens, Self::WallSecs, Self::ToolCalls];

    /// Name of the bound in a user's tier.
    pub(crate) fn held(self) -> &'static str {
        match self {
            Self::MicroUsd => "execution_micro_usd",
            Self::Tokens => "execution_tokens",
            Self::WallSecs => "execution_wall_secs",
            Self::ToolCalls => "execution_tool_calls",
        }
    }

    /// Name for clients.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::MicroUsd => "micro_usd",
            Self::Tokens => "tokens",
            Self::WallSecs => "wall_secs",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Amounts by kind. In a budget a kind that is missing is not bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BudgetAmounts(BTreeMap<BudgetKind, u64>);

impl BudgetAmounts {
    pub(crate) fn of(budget: &AgentBudget) -> Self {
        let AgentBudget { usd, tokens, wall_secs, tool_calls } = *budget;
        let kinds = [usd.map(micro), tokens, wall_secs, tool_calls];
        let set = BudgetKind::ALL.into_iter().zip(kinds);
        Self(set.filter_map(|(kind, amount)| Some((kind, amount?))).collect())
    }

    /// Amount of a turn.
    pub(crate) fn turn(tokens: u64, micro_usd: Option<u64>) -> Self {
        Self::from([(BudgetKind::Tokens, tokens), (BudgetKind::MicroUsd, micro_usd.unwrap_or(0))])
    }

    pub(crate) fn from<const N: usize>(amounts: [(BudgetKind, u64); N]) -> Self {
        Self(amounts.into_iter().filter(|(_, amount)| *amount > 0).collect())
    }

    pub(crate) fn get(&self, kind: BudgetKind) -> Option<u64> {
        self.0.get(&kind).copied()
    }

    pub(crate) fn amount(&self, kind: BudgetKind) -> u64 {
        self.get(kind).unwrap_or(0)
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (BudgetKind, u64)> + '_ {
        self.0.iter().map(|(kind, amount)| (*kind, *amount))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        for (kind, amount) in other.kinds() {
            let sum = self.0.entry(kind).or_default();
            *sum = sum.saturating_add(amount);
        }
        self
    }

    #[must_use]
    pub(crate) fn minus(mut self, other: &Self) -> Self {
        for (kind, amount) in other.kinds() {
            let rest = self.0.entry(kind).or_default();
            *rest = rest.saturating_sub(amount);
        }
        self
    }

    /// Bounds of both: the lower one of each kind.
    #[must_use]
    pub(crate) fn within(mut self, other: &Self) -> Self {
        for (kind, most) in other.kinds() {
            let bound = self.0.entry(kind).or_insert(most);
            *bound = most.min(*bound);
        }
        self
    }

    /// Bounds with those of another where they are missing.
    #[must_use]
    pub(crate) fn or(mut self, other: &Self) -> Self {
        for (kind, bound) in other.kinds() {
            self.0.entry(kind).or_insert(bound);
        }
        self
    }

    /// Checks that no bound is above what may be set.
    ///
    /// # Errors
    /// `budget_above_bound`.
    pub(crate) fn check(&self, most: &Self) -> Result<(), ToolError> {
        let above =
            |(kind, amount): &(BudgetKind, u64)| most.get(*kind).is_some_and(|it| it < *amount);
        let Some((kind, amount)) = self.kinds().find(above) else { return Ok(()) };
        let (kind, most) = (kind.word(), most.amount(kind));
        let message = format!("a budget of {amount} {kind} is above the bound of {most}");
        Err(ToolError::new(Layer::Quota, codes::BUDGET_ABOVE_BOUND, message)
            .next("ask for less, or have the operator raise `agent.budget`")
            .detail("kind", kind)
            .detail("limit", most))
    }

    /// Kinds of which so much is used that it is to be told, with the amount and the bound.
    pub(crate) fn nearly_used(&self, used: &Self) -> Vec<(BudgetKind, u64, u64)> {
        let with = self.kinds().map(|(kind, most)| (kind, used.amount(kind), most));
        with.filter(|(_, used, most)| used.saturating_mul(100) >= most.saturating_mul(WARN_AT))
            .collect()
    }
}

impl FromIterator<(BudgetKind, u64)> for BudgetAmounts {
    fn from_iter<I: IntoIterator<Item = (BudgetKind, u64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

/// Dollars in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn micro(usd: f64) -> u64 {
    (usd * MICRO).ceil() as u64
}

/// A wait for more budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BudgetWait {
    /// Execution whose bound is reached: this one, or one above it.
    pub(crate) of: ExecutionId,
    pub(crate) kind: BudgetKind,
    pub(crate) used: u64,
    pub(crate) wanted: u64,
    pub(crate) limit: u64,
    /// Time at which it fails.
    pub(crate) until: DateTime<Utc>,
}

impl BudgetWait {
    /// Error of an execution that nobody gave more.
    pub(crate) fn unanswered(&self) -> ToolError {
        let Self { kind, used, wanted, limit, .. } = self;
        let kind = kind.word();
        let message = format!(
            "{used} of {limit} {kind} were used, {wanted} more were wanted, and nobody added to the budget"
        );
        ToolError::new(Layer::Quota, codes::BUDGET_EXHAUSTED, message)
            .next("run the agent again with a larger budget")
    }
}

/// Message of a person, or of the execution above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecutionMessage {
    pub(crate) text: String,
    pub(crate) by: User,
}

/// Change of an account, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum AccountChange {
    /// A request is about to be made: so much may be used by it, and so much was by attempts before.
    Reserved { iteration: usize, turn: usize, wanted: BudgetAmounts, lost: BudgetAmounts },
    /// The calls of a turn fit the budget, and are about to be made.
    CallsAdmitted { iteration: usize, turn: usize, calls: u64 },
    /// Most of a bound is used.
    BudgetWarned { kind: BudgetKind, used: u64, limit: u64 },
    /// A bound has too little left: the execution waits.
    BudgetReached(BudgetWait),
    /// The budget is larger, or that of an execution above it: the wait is over.
    Continued { added: BudgetAmounts, by: User },
    /// Somebody says something to the agent.
    Messaged(ExecutionMessage),
    /// The execution began another one.
    ChildBegun { child: ExecutionId, agent: String },
    /// A child is over, and used so much with all below it.
    ChildEnded {
        child: ExecutionId,
        agent: String,
        status: String,
        error: Option<Box<ToolError>>,
        used: BudgetAmounts,
    },
    /// The parent and the children know of the end.
    Informed,
}

impl AccountChange {
    /// True for one that comes while no step is taken, too, and so says nothing of the time of work.
    pub(crate) fn is_from_outside(&self) -> bool {
        matches!(self, Self::Messaged(_) | Self::ChildBegun { .. } | Self::ChildEnded { .. })
    }

    /// Change as clients are shown it.
    pub(crate) fn event(&self) -> (&'static str, Value) {
        match self {
            Self::Reserved { iteration, turn, wanted, lost } => (
                "budget_reserved",
                json!({ "iteration": iteration + 1, "turn": turn + 1, "wanted": wanted,
                    "lost": lost }),
            ),
            Self::CallsAdmitted { iteration, turn, calls } => (
                "calls_admitted",
                json!({ "iteration": iteration + 1, "turn": turn + 1, "calls": calls }),
            ),
            Self::BudgetWarned { kind, used, limit } => {
                ("budget_warning", json!({ "kind": kind, "used": used, "limit": limit }))
            }
            Self::BudgetReached(wait) => ("budget_reached", json!(wait)),
            Self::Continued { added, by } => {
                ("execution_continued", json!({ "added": added, "by": by }))
            }
            Self::Messaged(message) => ("message_received", json!(message)),
            Self::ChildBegun { child, agent } => {
                ("child_started", json!({ "execution_id": child, "agent": agent }))
            }
            Self::ChildEnded { child, agent, status, error, used } => (
                "child_ended",
                json!({ "execution_id": child, "agent": agent, "status": status, "error": error,
                    "used": used }),
            ),
            Self::Informed => ("relatives_informed", json!({})),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExecutionAccount {
    /// Bounds, with what was added.
    pub(crate) budget: BudgetAmounts,
    /// Amounts of its turns and calls that are over.
    used: BudgetAmounts,
    /// Amounts that the turn which is asked may come to.
    reserved: BudgetAmounts,
    /// Amounts of its children that ended.
    pub(crate) children_used: BudgetAmounts,
    pub(crate) warned: BTreeSet<BudgetKind>,
    /// Last turn whose calls fit the budget.
    admitted: Option<(usize, usize)>,
    /// Wait with its beginning.
    waiting: Option<(DateTime<Utc>, BudgetWait)>,
    /// Waits that are over.
    waited: Vec<(DateTime<Utc>, DateTime<Utc>)>,
    pub(crate) messages: Vec<ExecutionMessage>,
    /// Number of messages that the model has read.
    read: usize,
    /// Children, and whether they are known to be over.
    pub(crate) children: BTreeMap<ExecutionId, bool>,
    /// True once the parent and the children know of the end.
    pub(crate) informed: bool,
}

impl ExecutionAccount {
    pub(crate) fn new(budget: BudgetAmounts) -> Self {
        Self {
            budget,
            used: BudgetAmounts::default(),
            reserved: BudgetAmounts::default(),
            children_used: BudgetAmounts::default(),
            warned: BTreeSet::new(),
            admitted: None,
            waiting: None,
            waited: Vec::new(),
            messages: Vec::new(),
            read: 0,
            children: BTreeMap::new(),
            informed: false,
        }
    }

    /// Amounts of its own; a turn without an answer counts whole.
    pub(crate) fn own(&self) -> BudgetAmounts {
        self.used.clone().plus(&self.reserved)
    }

    /// Amounts that the turn which is asked may come to, or may have come to.
    pub(crate) fn reserved(&self) -> &BudgetAmounts {
        &self.reserved
    }

    /// Amounts of its own and of the children that ended.
    pub(crate) fn total(&self) -> BudgetAmounts {
        self.own().plus(&self.children_used)
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.read < self.messages.len()
    }

    pub(crate) fn unread(&self) -> usize {
        self.messages.len() - self.read.min(self.messages.len())
    }

    pub(crate) fn waiting(&self) -> Option<&BudgetWait> {
        self.waiting.as_ref().map(|(_, wait)| wait)
    }

    pub(crate) fn admits(&self, turn: (usize, usize)) -> bool {
        self.admitted == Some(turn)
    }

    /// Time since `at` in which it waited.
    pub(crate) fn waited_since(&self, at: DateTime<Utc>) -> TimeDelta {
        let within = |(from, to): &(DateTime<Utc>, DateTime<Utc>)| {
            (*to - *from.max(&at)).max(TimeDelta::zero())
        };
        self.waited.iter().map(within).sum()
    }

    /// Leaves a time out of that of its work: nobody had said anything.
    pub(crate) fn rested(&mut self, from: DateTime<Utc>, to: DateTime<Utc>) {
        self.waited.push((from, to));
    }

    /// Counts so many messages as read.
    pub(crate) fn took(&mut self, messages: usize) {
        self.read = self.read.max(messages);
    }

    /// Ends a wait, whose time is not work.
    pub(super) fn unblocked(&mut self, at: DateTime<Utc>) {
        self.waited.extend(self.waiting.take().map(|(since, _)| (since, at)));
    }

    /// Gives up what it is at: the messages so far count as read, and a wait is over.
    pub(super) fn stopped(&mut self, at: DateTime<Utc>) {
        self.took(self.messages.len());
        self.unblocked(at);
    }

    /// Follows an answer whose turn came to this, and whose request had so many messages.
    pub(crate) fn answered(&mut self, used: &BudgetAmounts, read: usize) {
        self.used = std::mem::take(&mut self.used).plus(used);
        self.reserved = BudgetAmounts::default();
        self.took(read);
    }

    /// Sets it back to nothing: what was used is another execution's.
    pub(super) fn inherited(&mut self) {
        (self.used, self.reserved) = (BudgetAmounts::default(), BudgetAmounts::default());
    }

    /// Counts the calls of a turn as set aside.
    pub(super) fn admitted(&mut self, turn: (usize, usize)) {
        self.admitted = Some(turn);
    }

    /// Goes back to the first `kept` messages, of which so many are read, and to those behind the first `before`;
    /// and ends a wait.
    pub(super) fn rewound(
        &mut self,
        (kept, before): (usize, usize),
        read: usize,
        at: DateTime<Utc>,
    ) {
        let since = self.messages.split_off(before.min(self.messages.len()));
        self.messages.truncate(kept);
        self.messages.extend(since);
        (self.read, self.admitted) = (read, None);
        self.unblocked(at);
    }

    /// Counts an amount of a request of its program.
    pub(crate) fn charge(&mut self, amount: &BudgetAmounts) {
        self.used = std::mem::take(&mut self.used).plus(amount);
    }

    /// Gives back an amount that was counted.
    pub(crate) fn credit(&mut self, amount: &BudgetAmounts) {
        self.used = std::mem::take(&mut self.used).minus(amount);
    }

    /// Follows a change; `None` for one that cannot be.
    pub(crate) fn follow(
        &mut self,
        change: &AccountChange,
        at: DateTime<Utc>,
        over: bool,
    ) -> Option<()> {
        match change {
            AccountChange::Reserved { wanted, lost, .. } => {
                self.used = std::mem::take(&mut self.used).plus(lost);
                self.reserved = wanted.clone();
            }
            AccountChange::CallsAdmitted { iteration, turn, calls } => {
                self.admitted = Some((*iteration, *turn));
                let calls = BudgetAmounts::from([(BudgetKind::ToolCalls, *calls)]);
                self.used = std::mem::take(&mut self.used).plus(&calls);
            }
            AccountChange::BudgetWarned { kind, .. } => drop(self.warned.insert(*kind)),
            AccountChange::BudgetReached(wait) if !over => self.waiting = Some((at, wait.clone())),
            AccountChange::Continued { added, .. } if !over => {
                for (kind, amount) in added.kinds() {
                    let bound = self.budget.0.get_mut(&kind)?;
                    *bound = bound.saturating_add(amount);
                    self.warned.remove(&kind);
                }
                self.unblocked(at);
            }
            // An end overtook them.
            AccountChange::BudgetReached(_) | AccountChange::Continued { .. } => {}
            AccountChange::Messaged(message) => self.messages.push(message.clone()),
            AccountChange::ChildBegun { child, .. } => {
                self.children.entry(*child).or_insert(false);
            }
            AccountChange::ChildEnded { child, used, .. } => {
                let known = self.children.get_mut(child).filter(|over| !**over)?;
                *known = true;
                self.children_used = std::mem::take(&mut self.children_used).plus(used);
            }
            AccountChange::Informed => self.informed = true,
        }
        Some(())
    }
}
