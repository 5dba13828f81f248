//! Question to the person at the client of a call that waits: more for an execution whose budget has too little left.

use std::{future::pending, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Door, FieldKind, FormField, ToolError, User, UserQuestion, lock};
use hivekeep_ports::{People, UserOutcome};
use hivekeep_runtime::{log::Decision, runs::RunCaller};
use serde_json::json;

use super::{Answer, View, continuation::continued};
use crate::{
    execution::{
        account::{BudgetAmounts, BudgetKind, BudgetWait},
        state::ExecutionState,
    },
    tools::AgentService,
};

/// Field of the form.
const AMOUNT: &str = "amount";

/// Bound that a person is asked to raise.
struct ReachedBound<'a> {
    wait: &'a BudgetWait,
    /// Bound as it is when they are asked. What they add is added to this one alone, and so once.
    limit: u64,
    /// Most that can be added.
    room: u64,
}

impl AgentService {
    /// Waits for an execution, and asks the person at the call's client for more budget meanwhile; true if it is not
    /// over.
    pub(super) async fn wait_asking(
        &self,
        cx: &CallCx,
        id: &str,
        limit: Duration,
    ) -> Answer<(View, bool)> {
        tokio::select! {
            biased;
            waited = self.runs.wait(cx, id, limit) => waited,
            asked = self.ask_for_budget(cx, id, limit) => Ok((asked, true)),
        }
    }

    /// Asks at each bound that is reached, once. Returns only where the client is given the question as the answer to
    /// its call, which ends with that.
    async fn ask_for_budget(&self, cx: &CallCx, id: &str, limit: Duration) -> View {
        // An agent is nobody's person.
        let agents = || self.shared.children.agents_above(cx.session);
        let client = cx.client.as_ref().filter(|_| cx.door != Door::Agent && agents().is_empty());
        let Some((client, people)) = client.zip(self.ports.find::<dyn People>()) else {
            return pending().await;
        };
        let caller = RunCaller { operator: false, ..self.run_caller(cx) };
        loop {
            let news = |state: &ExecutionState| {
                state.account.waiting().is_some_and(|wait| self.may_ask(state, wait))
            };
            let view = self.runs.until(caller, id, news).await;
            let Some(view) = view.ok().filter(|view| news(&view.state)) else {
                return pending().await;
            };
            let Some(wait) = view.state.account.waiting() else { return pending().await };
            let replied = match self.reached(caller, wait) {
                Ok(bound) => match people.ask(cx, question(&view, &bound), limit).await {
                    Ok(UserOutcome::Replied(reply)) => {
                        match reply.values.get(AMOUNT).and_then(serde_json::Value::as_u64) {
                            Some(amount) if amount > 0 => {
                                self.add_once(cx, caller, &bound, amount).await
                            }
                            _ => Ok(false),
                        }
                    }
                    Ok(UserOutcome::Unanswered(_)) if client.repeats() => return view,
                    Ok(UserOutcome::Unanswered(_)) => return pending().await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = &replied {
                tracing::info!(execution = id, %error, "a person was asked for more budget in vain");
            }
            if !matches!(replied, Ok(true)) {
                self.note_declined(&view, wait);
            }
        }
    }

    /// True unless a person said no to this very wait.
    fn may_ask(&self, state: &ExecutionState, wait: &BudgetWait) -> bool {
        lock(&self.declined).get(&state.begun.id) != Some(&wait.until)
    }

    /// Notes a no. Those of waits whose time is over are forgotten.
    fn note_declined(&self, view: &View, wait: &BudgetWait) {
        let (mut declined, now) = (lock(&self.declined), Utc::now());
        declined.retain(|_, until: &mut DateTime<Utc>| *until > now);
        declined.insert(view.state.begun.id, wait.until);
    }

    /// Bound that a wait is at, as it is now.
    ///
    /// # Errors
    /// `execution_not_found`; `invalid_input` where nothing can be added.
    fn reached<'a>(&self, caller: RunCaller, wait: &'a BudgetWait) -> Answer<ReachedBound<'a>> {
        let state = self.runs.get(caller, &wait.of.to_string())?.state;
        let limit = state.account.budget.amount(wait.kind);
        let most = self.budget_bounds(caller.user).get(wait.kind);
        let room = most.map_or(u64::MAX, |most| most.saturating_sub(limit));
        match room {
            0 => Err(ToolError::invalid("the budget is as large as it may be")
                .next("have the operator raise `agent.budget`")),
            _ => Ok(ReachedBound { wait, limit, room }),
        }
    }

    /// Adds to a bound if it still is what the person was asked about; true if there is nothing left to ask for.
    async fn add_once(
        &self,
        cx: &CallCx,
        caller: RunCaller,
        bound: &ReachedBound<'_>,
        amount: u64,
    ) -> Answer<bool> {
        let (of, kind, limit) = (bound.wait.of, bound.wait.kind, bound.limit);
        self.may_continue(cx, of)?;
        let (by, most): (User, _) =
            (cx.caller.unwrap_or(caller.user), self.budget_bounds(caller.user));
        let decide = move |state: &ExecutionState| {
            if state.account.budget.amount(kind) != limit {
                return Ok(Decision::nothing());
            }
            let added = BudgetAmounts::from([(kind, amount)]);
            Ok(Decision::record(continued(state, added, by, Some(&most))?))
        };
        self.runs.tell(caller, &of.to_string(), decide).await?;
        self.wake_for_budget(caller, of).await?;
        Ok(true)
    }
}

fn question(view: &View, bound: &ReachedBound<'_>) -> UserQuestion {
    let begun = &view.state.begun;
    let ReachedBound { wait: BudgetWait { of, kind, used, wanted, .. }, limit, room } = *bound;
    let unit = match kind {
        BudgetKind::MicroUsd => "millionths of a US dollar",
        BudgetKind::Tokens => "tokens",
        BudgetKind::WallSecs => "seconds of work",
        BudgetKind::ToolCalls => "calls of tools",
    };
    let whose = match *of == begun.id {
        true => String::new(),
        false => format!(" of {of}, above it"),
    };
    let short = used.saturating_add(*wanted).saturating_sub(limit).max(1);
    let question = format!(
        "The agent {} ({}) waits for more budget{whose}: {used} of {limit} {unit} are used, and {wanted} more are \
         wanted. Add to the bound, or decline and it goes on waiting.",
        begun.plan.agent, begun.id,
    );
    let amount = FormField {
        title: Some(format!("Add {unit}")),
        description: Some(format!("At least {short} are needed")),
        kind: FieldKind::Integer,
        default: Some(json!(limit.max(short).min(room))),
        ..FormField::text(AMOUNT)
    };
    UserQuestion { question, fields: vec![amount], ..UserQuestion::default() }
}
