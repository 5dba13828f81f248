//! Budget of an execution in its steps: set aside before each request and before the calls of each turn, and a wait
//! where it is not enough.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::ModelRequest;
use hivekeep_runtime::{
    log::{Decision, LogError},
    saga::SagaHandle,
};
use hivekeep_store::NewEvent;
use serde_json::json;

use super::{
    ExecutionSaga, ExecutionShared,
    account::{AccountChange, BudgetAmounts, BudgetKind, BudgetWait},
    state::{ExecutionState, Record},
    tree::BudgetShortage,
};
use crate::codes;

impl ExecutionSaga {
    /// Sets aside what a request may cost, after what attempts before it may have cost. False if a bound has too
    /// little left: that is recorded, and the execution waits.
    ///
    /// # Errors
    /// `model_price_unknown`; when nothing can be recorded.
    pub(super) async fn reserve_turn(
        &self,
        request: &ModelRequest,
        lost: &BudgetAmounts,
    ) -> Result<bool, ToolError> {
        let state = &self.handle.state();
        let (id, account) = (state.begun.id, &state.account);
        let bounded = self.shared.tree.bounded(id);
        match self.time_left(state) {
            Some((left, shortage)) if left.is_zero() => {
                self.wait(shortage).await?;
                return Ok(false);
            }
            Some((_, BudgetShortage { kind, used, .. })) => {
                self.warn(state, &BudgetAmounts::from([(kind, used)])).await?;
            }
            None => {}
        }
        if !bounded.contains(&BudgetKind::Tokens) && !bounded.contains(&BudgetKind::MicroUsd) {
            return Ok(true);
        }
        let worst = self.shared.models.worst_case(request)?;
        if bounded.contains(&BudgetKind::MicroUsd) && worst.cost_micro_usd.is_none() {
            let message = format!("money is bounded, and `{}` has no price", request.model);
            return Err(ToolError::new(Layer::Quota, codes::MODEL_PRICE_UNKNOWN, message).next(
                "bound tokens in place of `usd`; the operator sets the prices of the model",
            ));
        }
        let tokens = worst.input_tokens.saturating_add(worst.output_tokens);
        let wanted = BudgetAmounts::turn(tokens, worst.cost_micro_usd);
        let (iteration, turn) = state.next_turn();
        let change =
            AccountChange::Reserved { iteration, turn, wanted: wanted.clone(), lost: lost.clone() };
        let own = account.own().minus(account.reserved()).plus(lost).plus(&wanted);
        Ok(self.claim(state, own, change).await?)
    }

    /// Time of work that the budget leaves, and the wait once it leaves none; nothing where time is not bounded.
    pub(super) fn time_left(&self, state: &ExecutionState) -> Option<(Duration, BudgetShortage)> {
        let (of, kind) = (state.begun.id, BudgetKind::WallSecs);
        let limit = state.account.budget.get(kind)?;
        let worked = self.worked(state, state.begun.at);
        let left = Duration::from_secs(limit).saturating_sub(worked);
        let used = worked.as_secs();
        Some((left, BudgetShortage { of, kind, used, wanted: 1, limit }))
    }

    /// Sets the calls of the last turn aside, all or none.
    pub(super) async fn admit(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some((iteration, turn, calls)) = state.calls_to_admit() else { return Ok(()) };
        let change = AccountChange::CallsAdmitted { iteration, turn, calls };
        let calls = BudgetAmounts::from([(BudgetKind::ToolCalls, calls)]);
        let own = state.account.own().plus(&calls);
        self.claim(&state, own, change).await.map(drop)
    }

    async fn claim(
        &self,
        state: &ExecutionState,
        own: BudgetAmounts,
        change: AccountChange,
    ) -> Result<bool, LogError> {
        let (tree, account) = (&self.shared.tree, &state.account);
        match tree.claim(state.begun.id, &account.budget, &own) {
            Ok(total) => {
                self.warn(state, &total).await?;
                self.handle.record(Record::account(change)).await?;
                Ok(true)
            }
            Err(shortage) => {
                self.wait(shortage).await?;
                Ok(false)
            }
        }
    }

    /// Records, once for each bound, that most of it is used.
    async fn warn(&self, state: &ExecutionState, used: &BudgetAmounts) -> Result<(), LogError> {
        let account = &state.account;
        for (kind, used, limit) in account.budget.nearly_used(used) {
            if !account.warned.contains(&kind) {
                let warned = AccountChange::BudgetWarned { kind, used, limit };
                self.handle.record(Record::account(warned)).await?;
            }
        }
        Ok(())
    }

    /// Records that a bound has too little left.
    pub(super) async fn wait(&self, shortage: BudgetShortage) -> Result<(), LogError> {
        wait_for_budget(&self.handle, &self.shared, shortage).await
    }

    /// Makes what the tree has of it what is recorded.
    pub(super) fn settle(&self) {
        let state = self.handle.state();
        self.shared.tree.settle(state.begun.id, &state.account);
    }
}

/// Records that a bound has too little left, unless an execution waits already, or its machine is still to go on: whoever
/// needs more asks again.
pub(crate) async fn wait_for_budget(
    handle: &SagaHandle<ExecutionSaga>,
    shared: &ExecutionShared,
    shortage: BudgetShortage,
) -> Result<(), LogError> {
    let BudgetShortage { of, kind, used, wanted, limit } = shortage;
    let until = Utc::now() + shared.patience;
    let event = |state: &ExecutionState| NewEvent {
        kind: "execution.budget_reached".to_owned(),
        subject: state.begun.id.to_string(),
        data: json!({ "user": state.begun.user, "agent": state.begun.plan.agent, "of": of,
                "kind": kind, "used": used, "wanted": wanted, "limit": limit }),
    };
    let wait = BudgetWait { of, kind, used, wanted, limit, until };
    let decide = |state: &ExecutionState| {
        let held = state.account.waiting().is_some() || state.standstill_due().is_some();
        if held || state.asks_no_more() {
            return Ok(Decision::nothing());
        }
        let reached = Record::account(AccountChange::BudgetReached(wait));
        Ok(Decision::record(reached).event(event(state)))
    };
    handle.decide::<LogError>(decide).await
}
