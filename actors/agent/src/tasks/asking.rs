//! Question to the person at the client of a call that waits: more for an execution whose budget has too little left.

use std::{future::pending, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Door, FieldKind, FormField, User, UserQuestion, lock};
use hivekeep_ports::{People, UserOutcome};
use hivekeep_runtime::{
    log::Decision,
    runs::{RunCaller, to_its_end},
};
use serde_json::json;

use super::{
    Answer, View,
    continuation::{continued, wake_for_budget},
};
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
struct ReachedBound {
    wait: BudgetWait,
    /// Bound as it is when they are asked. What they add is added to this one alone, and so once.
    limit: u64,
    /// Most that can be added.
    room: u64,
}

impl AgentService {
    /// Waits for an execution, and asks the person at the call's client for more budget meanwhile; true if it is not
    /// over.
    pub(super) async fn wait_asking(
        self: &Arc<Self>,
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
    async fn ask_for_budget(self: &Arc<Self>, cx: &CallCx, id: &str, limit: Duration) -> View {
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
            let Some(bound) = self.reached(cx, caller, wait) else { return pending().await };
            let amount = match people.ask(cx, question(&view, &bound), limit).await {
                Ok(UserOutcome::Replied(reply)) => {
                    reply.values.get(AMOUNT).and_then(serde_json::Value::as_u64).unwrap_or_default()
                }
                Ok(UserOutcome::Unanswered(_)) if client.repeats() => return view,
                Ok(UserOutcome::Unanswered(_)) | Err(_) => return pending().await,
            };
            if amount == 0 {
                self.note_declined(&view, wait);
                continue;
            }
            let (service, cx) = (self.clone(), cx.clone());
            // The call may end, or be cancelled, between the record and the wake.
            let adding = async move { service.add_once(&cx, caller, &bound, amount).await };
            if let Err(error) = to_its_end(adding).await {
                tracing::info!(execution = id, %error, "a person added to a budget in vain");
                // Whoever waits next is asked.
                return pending().await;
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

    /// Bound that a wait is at, as it is now; `None` where nothing can be added, or the caller's session may not.
    fn reached(&self, cx: &CallCx, caller: RunCaller, wait: &BudgetWait) -> Option<ReachedBound> {
        let state = self.runs.get(caller, &wait.of.to_string()).ok()?.state;
        let limit = state.account.budget.amount(wait.kind);
        let most = self.budget_bounds(caller.user).get(wait.kind);
        let room = most.map_or(u64::MAX, |most| most.saturating_sub(limit));
        let more = json!({ "execution_id": wait.of, "budget": {} });
        let may = self.calls.allows(cx.session, &cx.view, "agent_continue", &more);
        (may && room > 0).then(|| ReachedBound { wait: wait.clone(), limit, room })
    }

    /// Adds to a bound if it still is what the person was asked about.
    ///
    /// # Errors
    /// Those of `agent_continue`.
    async fn add_once(
        &self,
        cx: &CallCx,
        caller: RunCaller,
        bound: &ReachedBound,
        amount: u64,
    ) -> Answer<()> {
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
        wake_for_budget(&self.runs, &self.shared, caller, of).await
    }
}

fn question(view: &View, bound: &ReachedBound) -> UserQuestion {
    let begun = &view.state.begun;
    let ReachedBound { wait: BudgetWait { of, kind, used, wanted, .. }, .. } = bound;
    let (limit, room) = (bound.limit, bound.room);
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
         wanted. Add to the bound, or decline and it goes on waiting. A reply counts while \
         aegis.task.wait waits.",
        begun.plan.agent, begun.id,
    );
    let most = match room {
        u64::MAX => String::new(),
        room => format!(", and at most {room} may be added"),
    };
    let amount = FormField {
        title: Some(format!("Add {unit}")),
        description: Some(format!("At least {short} are needed{most}")),
        kind: FieldKind::Integer,
        default: Some(json!(limit.max(short).min(room))),
        ..FormField::text(AMOUNT)
    };
    UserQuestion { question, fields: vec![amount], ..UserQuestion::default() }
}
