//! `message` and `receive`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError};
use tokio::sync::oneshot;

use super::{Teams, missing};
use crate::{
    mailbox::{self, Ask, Loan, book::Lent},
    refuse, tasks,
    team::{self, Said, Speech, authorize},
    tools::team::{Confirm, Team, TeamAction, TeamMessage, TeamResult, Undelivered},
};

/// The longest content.
const MAX_CONTENT_BYTES: usize = 256 * 1024;
/// The longest word for a type.
const MAX_TYPE_CHARS: usize = 64;
/// What the messages of one answer may take, in bytes of JSON; the tool's budget is 4 MiB, and
/// doors send a result twice.
const ANSWER_BYTES: usize = 3 * 1024 * 1024;
const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 100;
const MAX_WAIT_SECS: u64 = 300;
/// Ids that one call confirms.
const MAX_CONFIRMED: usize = 1_000;
/// For a write of an inbox. Above the journal's own deadline, which decides.
const PATIENCE: Duration = Duration::from_secs(35);

impl Teams {
    pub(crate) fn message(
        &mut self,
        cx: &CallCx,
        input: Team,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (_, team) = self.find(input.name.as_deref())?;
        let from = input.agent.ok_or_else(|| missing("agent"))?;
        let to = input.to.ok_or_else(|| missing("to"))?;
        let content = input.content.ok_or_else(|| missing("content"))?;
        let kind = input.message_type.unwrap_or_else(|| "text".to_owned());
        if content.len() > MAX_CONTENT_BYTES {
            let message = format!("content has {} bytes", content.len());
            return Err(ToolError::new(Layer::Actor, "message_too_large", message)
                .next("write it to a file of a workspace and send its path")
                .detail("limit_bytes", MAX_CONTENT_BYTES));
        }
        if kind.is_empty() || kind.chars().count() > MAX_TYPE_CHARS {
            return Err(ToolError::invalid("message_type: 1 to 64 characters"));
        }
        tasks::refuse(&kind)?;
        let speech = Speech { session: cx.session, from, to, kind, content };
        let (from, to) = (speech.from.clone(), speech.to.clone());
        let (reply, answer) = oneshot::channel();
        // From here to the inbox in order, without waiting.
        team.send(team::Msg::Speak(speech, reply))?;
        let name = input.name;
        Ok(Reply::later(async move {
            let said = answer
                .await
                .map_err(|_| hivekeep_kernel::AskError::Dropped("the team".to_owned()))??;
            delivered(said, name, from, to)
        }))
    }

    pub(crate) fn receive(
        &mut self,
        cx: &CallCx,
        input: Team,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (_, team) = self.find(input.name.as_deref())?;
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
        let waits = self.house.waits.clone();
        let wait = match wait {
            0 => None,
            secs => {
                let waiting = self.house.options.waiting_receivers;
                let one = waits.try_acquire_owned();
                let one = one.map_err(|_| refuse::too_many_receivers("any member", waiting))?;
                Some((Duration::from_secs(secs), one))
            }
        };
        let explicit = input.confirm.unwrap_or_default() == Confirm::Explicit;
        let (house, workers, cx) = (self.house.clone(), self.me.workers.clone(), cx.clone());
        Ok(Reply::later(async move {
            let card = authorize(&house, &team, cx.session).await?;
            card.ready()?;
            let mailbox = card.mailboxes[card.member(&agent)?].clone();
            let confirming = !confirmed.is_empty();
            let gone = match confirming {
                true => mailbox.ask(PATIENCE, |r| mailbox::Msg::Confirm(confirmed, r)).await??,
                false => 0,
            };
            let (reply, answer) = oneshot::channel();
            let ask = Ask { limit, answer_bytes: ANSWER_BYTES, wait: wait.is_some(), reply };
            mailbox.send(mailbox::Msg::Ask(ask))?;
            let patience = wait.as_ref().map(|(patience, _)| *patience);
            let loan = cx.guard(lent(answer, patience)).await?;
            let mut result = received(&loan, &agent);
            result.name = Some(card.plan().name.clone());
            result.confirmed = confirming.then_some(gone);
            if let Some(loan) = loan {
                let receipt = cx.receipt.clone();
                // Until it is known whether the answer arrived, nobody is given anything else.
                let _detached = workers.spawn(async move {
                    if receipt.taken().await && !explicit {
                        loan.taken();
                    }
                });
            }
            Ok(result)
        }))
    }
}

/// What the inbox gives; `None` when nothing came in time.
async fn lent(
    answer: oneshot::Receiver<Result<Loan, ToolError>>,
    wait: Option<Duration>,
) -> Result<Option<Loan>, ToolError> {
    let dropped = |_| hivekeep_kernel::AskError::Dropped("the inbox".to_owned());
    let Some(wait) = wait else { return answer.await.map_err(dropped)?.map(Some) };
    match tokio::time::timeout(wait, answer).await {
        Ok(answer) => answer.map_err(dropped)?.map(Some),
        Err(_) => Ok(None),
    }
}

fn received(loan: &Option<Loan>, agent: &str) -> TeamResult {
    let messages: Vec<_> = loan.iter().flat_map(|loan| &loan.messages).map(message_of).collect();
    TeamResult {
        action: Some(TeamAction::Receive),
        agent: Some(agent.to_owned()),
        count: Some(messages.len()),
        messages: Some(messages),
        waiting: Some(loan.as_ref().map_or(0, |loan| loan.left)),
        // No task is taken, see `tasks`, so there is none.
        daemon_results: Some(Vec::new()),
        daemon_pending_tasks: Some(0),
        ..TeamResult::default()
    }
}

fn message_of(lent: &Lent) -> TeamMessage {
    let message = lent.message.clone();
    TeamMessage {
        message_id: message.id,
        from: message.from,
        to: message.to,
        content: message.content,
        message_type: message.kind,
        timestamp: message.at,
        redelivered: lent.again,
    }
}

/// That a message is nowhere is an error; that it is not everywhere is told.
fn delivered(
    said: Said,
    name: Option<String>,
    from: String,
    to: String,
) -> Result<TeamResult, ToolError> {
    let (mut there, mut undelivered, mut first) = (Vec::new(), Vec::new(), None);
    for (member, outcome) in said.outcomes {
        match outcome {
            Ok(()) => there.push(member),
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
        message_id: Some(said.id),
        status: Some(status.to_owned()),
        from: Some(from),
        to: Some(to),
        delivered_to: Some(there),
        undelivered: (!undelivered.is_empty()).then_some(undelivered),
        ..TeamResult::default()
    })
}
