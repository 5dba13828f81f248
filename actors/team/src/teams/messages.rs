//! `message` and `receive`.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, MessageId, Reply, ToolError};

use super::{
    Teams,
    collect::{Collected, Places},
    missing, tasks,
};
use crate::{
    codes,
    desk::{assignment::Assignment, ledger::Stand},
    mailbox::book::{Lent, Message},
    team::{Speech, authorize},
    tools::team::{Confirm, Team, TeamAction, TeamMessage, TeamResult, Undelivered},
};

/// The longest content.
const MAX_CONTENT_BYTES: usize = 256 * 1024;
/// The longest word for a type.
const MAX_TYPE_CHARS: usize = 64;
/// The type of message that is a task.
const TASK: &str = "task_assignment";
const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 100;
const MAX_WAIT_SECS: u64 = 300;
/// Ids that one call confirms.
const MAX_CONFIRMED: usize = 1_000;
/// For an answer to leave the daemon: a client that does not read keeps nothing from others for
/// longer.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

impl Teams {
    pub(crate) fn message(
        &mut self,
        cx: &CallCx,
        input: Team,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, team) = self.find(input.name.as_deref())?;
        let from = input.agent.ok_or_else(|| missing("agent"))?;
        let to = input.to.ok_or_else(|| missing("to"))?;
        let content = input.content.ok_or_else(|| missing("content"))?;
        let kind = input.message_type.unwrap_or_else(|| "text".to_owned());
        if content.len() > MAX_CONTENT_BYTES {
            let message = format!("content has {} bytes", content.len());
            return Err(ToolError::new(Layer::Actor, codes::MESSAGE_TOO_LARGE, message)
                .next("write it to a file of a workspace and send its path")
                .detail("limit_bytes", MAX_CONTENT_BYTES));
        }
        if kind.is_empty() || kind.chars().count() > MAX_TYPE_CHARS {
            return Err(ToolError::invalid("message_type: 1 to 64 characters"));
        }
        let task = (kind == TASK).then(|| Assignment::parse(&content)).transpose()?;
        let speech = Speech::new(cx.session, from.clone(), to.clone(), kind, content, task);
        // From here to the inbox in order, without waiting.
        let saying = self.house.fronts.of(id).say(&team, speech)?;
        let name = input.name;
        Ok(Reply::later(async move {
            let said = saying.said().await?;
            delivered(said.id, said.outcomes().await, name, from, to)
        }))
    }

    pub(crate) fn receive(
        &mut self,
        cx: &CallCx,
        input: Team,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, team) = self.find(input.name.as_deref())?;
        let agent = input.agent.ok_or_else(|| missing("agent"))?;
        let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
        let wait = input.wait_secs.unwrap_or(0);
        let confirmed = input.confirmed.unwrap_or_default();
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(ToolError::invalid(format!("limit must be 1 to {MAX_LIMIT}")));
        }
        if wait > MAX_WAIT_SECS {
            return Err(ToolError::invalid(format!("wait_secs must be at most {MAX_WAIT_SECS}")));
        }
        if confirmed.len() > MAX_CONFIRMED {
            return Err(ToolError::invalid(format!("confirmed: at most {MAX_CONFIRMED} ids")));
        }
        let wait = match wait {
            0 => None,
            secs => Some((Duration::from_secs(secs), self.house.waits.enter(id, cx.session)?)),
        };
        let explicit = input.confirm.unwrap_or_default() == Confirm::Explicit;
        let shown = self.house.fronts.of(id).card(cx.session);
        let (house, workers, cx) = (self.house.clone(), self.me.workers.clone(), cx.clone());
        Ok(Reply::later(async move {
            let card = match shown {
                Some(card) => card,
                None => Arc::new(authorize(&house, &team, cx.session).await?),
            };
            card.ready()?;
            let number = card.member(&agent)?;
            let places = Places::of(&card, number)?;
            let confirming = !confirmed.is_empty();
            let gone = match confirming {
                true => places.confirm(confirmed).await?,
                false => 0,
            };
            if wait.is_some() {
                // Bounded by what was just taken, and not by the admission of all teams.
                cx.slot.give_back();
            }
            let patience = wait.as_ref().map(|(patience, _)| *patience);
            let collected = cx.guard(places.collect(limit, patience)).await?;
            let mut result = received(&collected, &agent);
            result.unavailable = places.lost;
            result.name = Some(card.plan().name.clone());
            result.confirmed = confirming.then_some(gone);
            let receipt = cx.receipt.clone();
            // Until it is known whether the answer arrived, nobody is given anything else.
            let _detached = workers.spawn(async move {
                let taken = tokio::time::timeout(WRITTEN_WITHIN, receipt.taken()).await;
                if taken == Ok(true) && !explicit {
                    collected.taken();
                }
            });
            Ok(result)
        }))
    }
}

fn received(collected: &Collected, agent: &str) -> TeamResult {
    let Collected { messages, results } = collected;
    let items: Vec<_> = messages.iter().flat_map(|loan| &loan.items).map(message_of).collect();
    TeamResult {
        action: Some(TeamAction::Receive),
        agent: Some(agent.to_owned()),
        count: Some(items.len()),
        messages: Some(items),
        waiting: Some(messages.as_ref().map_or(0, |loan| loan.left)),
        daemon_results: Some(
            results.iter().flat_map(|loan| &loan.items).map(tasks::lent).collect(),
        ),
        daemon_results_waiting: Some(results.as_ref().map_or(0, |loan| loan.left)),
        daemon_pending_tasks: Some(results.as_ref().map_or(0, |loan| loan.pending)),
        ..TeamResult::default()
    }
}

fn message_of(lent: &Lent<Message>) -> TeamMessage {
    let message = &lent.message;
    TeamMessage {
        message_id: message.id,
        from: message.from.clone(),
        to: message.to.clone(),
        content: message.content.to_string(),
        message_type: message.kind.clone(),
        timestamp: message.at,
        redelivered: lent.again,
    }
}

/// That a message is nowhere is an error; that it is not everywhere is told.
fn delivered(
    id: MessageId,
    outcomes: Vec<(String, Result<Option<Stand>, ToolError>)>,
    name: Option<String>,
    from: String,
    to: String,
) -> Result<TeamResult, ToolError> {
    let (mut there, mut undelivered, mut first) = (Vec::new(), Vec::new(), None);
    let (mut assigned, alone) = (Vec::new(), outcomes.len() == 1);
    for (member, outcome) in outcomes {
        match outcome {
            Ok(stand) => {
                assigned.extend(stand.map(|stand| tasks::assigned(&member, &stand, alone)));
                there.push(member);
            }
            Err(error) => {
                let (code, text) = (error.code.to_string(), error.message.clone());
                first.get_or_insert(error);
                undelivered.push(Undelivered { to: member, code, error: text });
            }
        }
    }
    if let (true, Some(error)) = (there.is_empty(), first) {
        return Err(error);
    }
    let status = if undelivered.is_empty() { "delivered" } else { "partly_delivered" };
    Ok(TeamResult {
        action: Some(TeamAction::Message),
        name,
        message_id: Some(id),
        status: Some(status.to_owned()),
        from: Some(from),
        to: Some(to),
        delivered_to: Some(there),
        undelivered: (!undelivered.is_empty()).then_some(undelivered),
        tasks: (!assigned.is_empty()).then_some(assigned),
        ..TeamResult::default()
    })
}
