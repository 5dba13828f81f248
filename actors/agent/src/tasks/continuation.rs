//! The tool that an execution is talked to by: a message, or more budget.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Door, ExecutionId, Layer, ToolError, User, tools};
use hivekeep_manifest::agent::AgentBudget;
use hivekeep_runtime::{
    log::Decision,
    runs::{RunCaller, Runs, to_its_end},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::types::TaskState;
use crate::{
    codes,
    execution::{
        ExecutionSaga, ExecutionShared,
        account::{AccountChange, BudgetAmounts, ExecutionMessage},
        relatives::wake_waiting,
        state::{ExecutionState, Record},
    },
    tools::AgentService,
};

/// Most messages that wait to be read.
const MOST_UNREAD: usize = 100;

/// Say something to an execution that is not over, or add to its budget. A message is read before its next request to
/// the model, also when it was about to end. One that waits for more budget (`waiting_for`) goes on. A chat can be
/// stopped in what it is at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentContinue {
    /// Id of the execution.
    execution_id: String,
    /// Message for the agent.
    #[schemars(length(min = 1, max = 65_536))]
    message: Option<String>,
    /// Amounts to add to the bounds of its budget.
    budget: Option<AgentBudget>,
    /// True to end what a chat is at, before the message: its calls are cut short, and it waits for the next message.
    #[serde(default)]
    stop: bool,
}

tools! { pub(crate) CONTINUE_FAMILY: "agents" for service AgentService, singleton agents;
    agent_continue: AgentContinue => TaskState = AgentService::continue_run {
        name: "agent_continue", title: "Talk to an execution", told_by: Some("aegis.task.logs"),
    };
}

impl AgentService {
    async fn continue_run(
        self: Arc<Self>,
        cx: CallCx,
        input: AgentContinue,
    ) -> Result<TaskState, ToolError> {
        let AgentContinue { execution_id, message, budget, stop } = input;
        self.say(&cx, &execution_id, message, budget, stop).await?;
        Ok(self.state(&self.runs.get(self.run_caller(&cx), &execution_id)?))
    }

    /// Says something to an execution, adds to its budget, or stops what it is at; the time is that of the record.
    pub(super) async fn say(
        &self,
        cx: &CallCx,
        execution_id: &str,
        message: Option<String>,
        budget: Option<AgentBudget>,
        stop: bool,
    ) -> Result<DateTime<Utc>, ToolError> {
        let caller = self.run_caller(cx);
        let view = self.runs.get(caller, execution_id)?;
        let id = view.state.begun.id;
        self.may_continue(cx, id)?;
        let (by, at) = (cx.caller.unwrap_or(caller.user), Utc::now());
        let message = message.map(|text| ExecutionMessage { text, by });
        if message.as_ref().is_some_and(|message| message.text.trim().is_empty()) {
            return Err(ToolError::invalid("the message is blank").next("say something"));
        }
        let added = budget.as_ref().map(BudgetAmounts::of).filter(|added| !added.is_empty());
        if message.is_none() && added.is_none() && !stop {
            let why = "neither a message nor a budget is given";
            return Err(ToolError::invalid(why).next("give at least one of them"));
        }
        let most = (!caller.operator).then(|| self.budget_bounds(view.state.begun.user));
        let more_budget = added.is_some();
        let decide = move |state: &ExecutionState| {
            let records = [
                stop.then(|| stopped(state, by, at)).transpose()?.flatten(),
                message.map(|message| said(state, message, at)).transpose()?,
                added.map(|added| continued(state, added, by, most.as_ref())).transpose()?,
            ];
            let records = records.into_iter().flatten();
            Ok(records.fold(Decision::nothing(), Decision::and))
        };
        let (runs, shared) = (self.runs.clone(), self.shared.clone());
        // A caller who goes away between the record and the wake has added for those who wait, too.
        to_its_end(async move {
            runs.tell(caller, &id.to_string(), decide).await?;
            match more_budget {
                true => wake_for_budget(&runs, &shared, caller, id).await,
                false => Ok(()),
            }
        })
        .await?;
        Ok(at)
    }

    /// A session of an agent, and those below it, talk to what the agent began alone: an agent that could give
    /// itself more budget, or speak as its user, would have no bounds.
    pub(super) fn may_continue(&self, cx: &CallCx, id: ExecutionId) -> Result<(), ToolError> {
        let agents = self.shared.children.agents_above(cx.session);
        if agents.is_empty() && cx.door != Door::Agent {
            return Ok(());
        }
        let own = self.shared.tree.of_sessions(&agents);
        if own.is_some_and(|own| self.shared.tree.is_below(id, own)) {
            return Ok(());
        }
        let message =
            format!("the session {} is an agent's, and {id} is none of its own", cx.session);
        Err(ToolError::new(Layer::Policy, codes::CONTINUE_DENIED, message)
            .next("have the owner continue it in a session of their own"))
    }
}

fn stopped(
    state: &ExecutionState,
    by: User,
    at: DateTime<Utc>,
) -> Result<Option<Record>, ToolError> {
    if state.begun.plan.chat.is_none() {
        return Err(ToolError::invalid(
            "the execution ends by itself, and waits for no next message",
        )
        .next("aegis.task.cancel ends it"));
    }
    Ok(state.answers().then_some(Record::Stopped { by, at }))
}

/// Has those go on that wait for the budget of an execution, which is larger now.
pub(super) async fn wake_for_budget(
    runs: &Runs<ExecutionSaga>,
    shared: &ExecutionShared,
    caller: RunCaller,
    id: ExecutionId,
) -> Result<(), ToolError> {
    let view = runs.get(caller, &id.to_string())?;
    shared.tree.raise(id, &view.state.account);
    let woken = wake_waiting(runs, |wait| wait.of == id && shared.has_left(wait)).await;
    if let Err(error) = woken {
        // The budget is written: an error would have the caller add to it again.
        tracing::warn!(execution = %id, %error, "those that wait for its budget wait on");
    }
    Ok(())
}

fn said(
    state: &ExecutionState,
    message: ExecutionMessage,
    at: DateTime<Utc>,
) -> Result<Record, ToolError> {
    if state.begun.plan.program.is_some() {
        let message = "a program reads no messages";
        return Err(ToolError::invalid(message).next("leave `message` out"));
    }
    if state.account.unread() >= MOST_UNREAD {
        let message = format!("{MOST_UNREAD} messages wait to be read");
        return Err(ToolError::new(Layer::Actor, hivekeep_kernel::codes::BUSY, message)
            .next("repeat the call when the agent has read them; nothing was written")
            .retryable());
    }
    Ok(Record::Account { change: AccountChange::Messaged(message), at })
}

pub(super) fn continued(
    state: &ExecutionState,
    added: BudgetAmounts,
    by: User,
    most: Option<&BudgetAmounts>,
) -> Result<Record, ToolError> {
    let budget = &state.account.budget;
    if let Some((kind, _)) = added.kinds().find(|(kind, _)| budget.get(*kind).is_none()) {
        let kind = kind.word();
        let why = format!("{kind} of the execution are not bounded, so there is nothing to add to");
        return Err(ToolError::invalid(why).next(format!("leave {kind} out")));
    }
    if let Some(wait) = state.account.waiting().filter(|wait| wait.of != state.begun.id) {
        let message = format!("it waits for the budget of {}, above it", wait.of);
        return Err(ToolError::new(Layer::Quota, codes::BUDGET_OF_PARENT, message)
            .next(format!("add to the budget of {}: this one goes on then", wait.of))
            .detail("execution_id", wait.of.to_string()));
    }
    if let Some(most) = most {
        budget.clone().plus(&added).check(most)?;
    }
    Ok(Record::account(AccountChange::Continued { added, by }))
}
