//! Requests that a program sent to its model, as an execution's records count them.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{Layer, ToolError};

use super::{
    account::{BudgetAmounts, ExecutionAccount},
    state::{ExecutionState, Record},
};
use crate::codes;

/// Fate of a request, the last time that it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestFate {
    /// Asked, without an end so far; if the daemon ended meanwhile, it was cut.
    Open,
    Cut,
    /// Refused by the provider, or not taken by it at all.
    Refused,
    Answered,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RelayedRequests {
    /// With what is set aside for each.
    fates: Arc<BTreeMap<String, (RequestFate, BudgetAmounts)>>,
    /// Requests of the current iteration, each once.
    turns: Arc<Vec<String>>,
    /// Requests that were sent to a provider, in the current iteration and in all.
    in_iteration: usize,
    pub(crate) asked: u64,
    /// Requests that were answered from the records.
    pub(crate) replayed: u64,
    /// Requests that were sent again because their answer had been cut.
    pub(crate) cut: u64,
    /// Requests that were sent with words of a fork.
    pub(crate) with_words: u64,
}

impl RelayedRequests {
    /// Whether the whole answer to a request is recorded.
    pub(crate) fn is_answered(&self, request: &str) -> bool {
        self.fates.get(request).is_some_and(|(fate, _)| *fate == RequestFate::Answered)
    }

    /// Number of other requests of the iteration that were asked before this one was the first time.
    pub(super) fn turns_before(&self, request: &str) -> Option<usize> {
        self.turns.iter().position(|turn| turn == request)
    }

    /// Forgets what only an execution that goes on needs.
    pub(super) fn rest(&mut self) {
        (self.fates, self.turns) = Default::default();
    }

    /// Begins to count the requests of an iteration.
    pub(super) fn begin_iteration(&mut self) {
        (self.in_iteration, self.turns) = Default::default();
    }

    /// Follows a record of a request, with what it costs: a request that was cut counts whole. Gives the tokens that
    /// were used.
    pub(super) fn follow(&mut self, record: &Record, account: &mut ExecutionAccount) -> u64 {
        let set_aside = |request: &str, fates: &BTreeMap<String, (RequestFate, BudgetAmounts)>| {
            fates.get(request).map(|(_, wanted)| wanted.clone()).unwrap_or_default()
        };
        let (request, fate, wanted, tokens) = match record {
            Record::ModelAsked { request, words, wanted, .. } => {
                let before = self.fates.get(request).map(|(fate, _)| fate);
                self.cut += u64::from(matches!(before, Some(RequestFate::Open | RequestFate::Cut)));
                self.asked += 1;
                self.with_words += u64::from(*words > 0);
                if self.turns_before(request).is_none() {
                    Arc::make_mut(&mut self.turns).push(request.clone());
                }
                self.in_iteration += 1;
                account.charge(wanted);
                (request, RequestFate::Open, wanted.clone(), 0)
            }
            Record::ModelAnswered { turn, .. } => {
                let tokens = turn.input_tokens.saturating_add(turn.output_tokens);
                account.credit(&set_aside(&turn.request, &self.fates));
                account.charge(&BudgetAmounts::turn(tokens, turn.cost_micro_usd));
                (&turn.request, RequestFate::Answered, BudgetAmounts::default(), tokens)
            }
            Record::ModelFailed { request, status: Some(_), error: Some(_), .. } => {
                (request, RequestFate::Cut, BudgetAmounts::default(), 0)
            }
            Record::ModelFailed { request, .. } => {
                account.credit(&set_aside(request, &self.fates));
                (request, RequestFate::Refused, BudgetAmounts::default(), 0)
            }
            Record::ModelReplayed { .. } => {
                self.replayed += 1;
                return 0;
            }
            _ => return 0,
        };
        Arc::make_mut(&mut self.fates).insert(request.clone(), (fate, wanted));
        tokens
    }
}

impl ExecutionState {
    /// True where nothing asks any more: the execution, its iteration or the program of that is over.
    pub(crate) fn asks_no_more(&self) -> bool {
        self.end.is_some() || self.iteration().is_none_or(|it| it.program.is_some())
    }

    /// Checks that a program may ask its model once more.
    ///
    /// # Errors
    /// `tokens_exhausted`, `turns_exhausted`, `program_failed` for a program that is over.
    pub(crate) fn may_ask(&self) -> Result<(), ToolError> {
        let limits = &self.begun.plan.limits;
        let quota = |code, message: String, next: &str| {
            Err(ToolError::new(Layer::Quota, code, message).next(next))
        };
        if self.asks_no_more() {
            let message = "the program is over";
            return Err(ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message));
        }
        if self.tokens >= limits.tokens {
            let message =
                format!("{} tokens were used, {} are allowed", self.tokens, limits.tokens);
            let next = "ask for less, or have the operator raise `agent.max_tokens`";
            return quota(codes::TOKENS_EXHAUSTED, message, next);
        }
        if self.relayed.in_iteration >= limits.turns {
            let message = format!("{} requests were not enough", limits.turns);
            let next = "ask for less, or have the operator raise `agent.max_turns`";
            return quota(codes::TURNS_EXHAUSTED, message, next);
        }
        Ok(())
    }
}
