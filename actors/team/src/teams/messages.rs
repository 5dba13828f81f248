//! `message` and `receive`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hivekeep_kernel::{Address, AskError, CallCx, Layer, MessageId, Reply, ToolError};
use hivekeep_ports::TaskOutcome;
use tokio::sync::oneshot;

use super::Teams;
use crate::{
    api::{
        AssignedTask, Confirm, ReceiveMessages, SendMessage, TaskReport, TeamAction, TeamMessage,
        TeamResult, Undelivered,
    },
    codes,
    inbox::Message,
    tasks::{Assignment, ledger::Stand, result::StoredResult},
    team::{
        self, Outgoing,
        member::delivery::{Delivered, Delivery, Request},
        operate,
    },
};

/// The longest content.
const MAX_CONTENT_BYTES: usize = 256 * 1024;
/// The type of message that is a task.
const TASK: &str = "task_assignment";
const DEFAULT_LIMIT: usize = 10;
/// Time limit for an answer to leave the daemon: a client that does not read keeps nothing from
/// others for longer.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);
/// Time limit of an answer of a team that it can decide at once.
const PATIENCE: Duration = Duration::from_secs(35);

/// Instead of the exit status of a task that has none.
const NO_STATUS: i32 = -1;
/// Added to the number of the signal that ended a task, as in `exec`.
const SIGNALLED: i32 = 128;

impl Teams {
    pub(crate) fn message(
        &mut self,
        cx: &CallCx,
        input: SendMessage,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let SendMessage { name, agent: from, to, content, message_type } = input;
        let (_, team) = self.find(&name)?;
        let kind = message_type.unwrap_or_else(|| "text".to_owned());
        if content.len() > MAX_CONTENT_BYTES {
            let message = format!("content has {} bytes", content.len());
            return Err(ToolError::new(Layer::Actor, codes::MESSAGE_TOO_LARGE, message)
                .next("write it to a file of a workspace and send its path")
                .detail("limit_bytes", MAX_CONTENT_BYTES));
        }
        let task = (kind == TASK).then(|| Assignment::parse(&content)).transpose()?;
        let session = cx.session;
        let message = Outgoing { session, from: from.clone(), to: to.clone(), kind, content, task };
        // In the order of the calls; the team decides without waiting.
        let (reply, answer) = oneshot::channel();
        team.send(team::Msg::Send(Box::new(message), reply))?;
        Ok(Reply::later(async move {
            let sent = answer.await.map_err(dropped)??;
            delivered(sent.id, sent.outcomes().await, name, from, to)
        }))
    }

    pub(crate) fn receive(
        &mut self,
        cx: &CallCx,
        input: ReceiveMessages,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, team) = self.find(&input.name)?;
        let agent = input.agent;
        let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
        let wait = input.wait_secs.unwrap_or(0);
        let confirmed = input.confirmed.filter(|ids| !ids.is_empty());
        let wait = match wait {
            0 => None,
            secs => Some((Duration::from_secs(secs), self.shared.waits.enter(id, cx.session)?)),
        };
        let explicit = input.confirm.unwrap_or_default() == Confirm::Explicit;
        let (workers, cx) = (self.me.workers.clone(), cx.clone());
        Ok(Reply::later(async move {
            let state = operate(&team, cx.session).await?.state;
            state.ready()?;
            let number = state.member(&agent)?;
            let confirmed = match confirmed {
                None => None,
                Some(ids) => Some(confirm(&team, number, ids).await?),
            };
            if wait.is_some() {
                // Bounded by what was just taken, and not by the admission of all teams.
                cx.slot.give_back();
            }
            let patience = wait.as_ref().map(|(patience, _)| *patience);
            let delivery = cx.guard(collect(&team, number, limit, patience)).await?;
            let mut result = received(&delivery, &agent);
            result.name = Some(state.plan.name.clone());
            result.confirmed = confirmed;
            let receipt = cx.receipt.clone();
            // Until it is known whether the answer arrived, nobody is given anything else.
            let _detached = workers.spawn(async move {
                let written = tokio::time::timeout(WRITTEN_WITHIN, receipt.taken()).await;
                if written == Ok(true) && !explicit {
                    delivery.ack();
                }
            });
            Ok(result)
        }))
    }
}

/// Confirms what was received earlier; says how much of it was there.
async fn confirm(
    team: &Address<team::Msg>,
    number: usize,
    ids: BTreeSet<MessageId>,
) -> Result<usize, ToolError> {
    let confirm = |reply| team::Msg::Confirm(number, ids, reply);
    let (count, written) = team.ask(PATIENCE, confirm).await??;
    for written in written.into_iter().flatten() {
        written.await?;
    }
    Ok(count)
}

/// Receives the items that are there now, at most `limit` of each kind; if there are none, waits
/// for the first within `patience`.
async fn collect(
    team: &Address<team::Msg>,
    number: usize,
    limit: usize,
    patience: Option<Duration>,
) -> Result<Delivery, ToolError> {
    let ask = |limit| {
        let (reply, answer) = oneshot::channel();
        let request = Request { limit, wait: patience.is_some(), reply };
        team.send(team::Msg::Receive(number, request))?;
        Ok::<_, ToolError>(answer)
    };
    let mut answer = ask(limit)?;
    let Some(patience) = patience else { return answer.await.map_err(dropped)? };
    if let Ok(delivery) = tokio::time::timeout(patience, &mut answer).await {
        return delivery.map_err(dropped)?;
    }
    answer.close();
    match answer.try_recv() {
        // Handed out before one stopped waiting.
        Ok(delivery) => delivery,
        Err(_none) => ask(0)?.await.map_err(dropped)?,
    }
}

fn dropped(_: oneshot::error::RecvError) -> ToolError {
    AskError::Dropped("the team".to_owned()).into()
}

fn received(delivery: &Delivery, agent: &str) -> TeamResult {
    let messages: Vec<_> = delivery.messages.iter().map(message_of).collect();
    let results = delivery.results.iter().map(|delivered| {
        let redelivered = Some(delivered.redelivered);
        TaskReport { redelivered, ..report(&delivered.item) }
    });
    TeamResult {
        action: Some(TeamAction::Receive),
        agent: Some(agent.to_owned()),
        count: Some(messages.len()),
        messages: Some(messages),
        waiting: Some(delivery.messages_left),
        daemon_results: Some(results.collect()),
        daemon_results_waiting: Some(delivery.results_left),
        daemon_pending_tasks: Some(delivery.pending),
        unavailable: delivery.unavailable.clone(),
        ..TeamResult::default()
    }
}

fn message_of(delivered: &Delivered<Arc<Message>>) -> TeamMessage {
    let message = &delivered.item;
    TeamMessage {
        message_id: message.id,
        from: message.from.clone(),
        to: message.to.clone(),
        content: message.content.to_string(),
        message_type: message.kind.clone(),
        timestamp: message.at,
        redelivered: delivered.redelivered,
    }
}

/// Builds the answer to a send. A message that no inbox holds is an error; one that only some hold
/// is reported.
fn delivered(
    id: MessageId,
    outcomes: Vec<(String, Result<Option<Stand>, ToolError>)>,
    name: String,
    from: String,
    to: String,
) -> Result<TeamResult, ToolError> {
    let (mut there, mut undelivered, mut first) = (Vec::new(), Vec::new(), None);
    let (mut tasks, alone) = (Vec::new(), outcomes.len() == 1);
    for (member, outcome) in outcomes {
        match outcome {
            Ok(stand) => {
                tasks.extend(stand.map(|stand| assigned(&member, &stand, alone)));
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
        name: Some(name),
        message_id: Some(id),
        status: Some(status.to_owned()),
        from: Some(from),
        to: Some(to),
        delivered_to: Some(there),
        undelivered: (!undelivered.is_empty()).then_some(undelivered),
        tasks: (!tasks.is_empty()).then_some(tasks),
        ..TeamResult::default()
    })
}

fn report(stored: &StoredResult) -> TaskReport {
    let capture = &stored.capture;
    let (exit_code, signal, code, reason) = match &stored.outcome {
        TaskOutcome::Exited { exit_code } => (*exit_code, None, None, None),
        TaskOutcome::Signalled { signal } => {
            (SIGNALLED.saturating_add(*signal), Some(*signal), None, None)
        }
        TaskOutcome::Invalid { code, reason } => {
            (NO_STATUS, None, Some(code.clone()), Some(reason.clone()))
        }
        TaskOutcome::Lost => {
            let reason = "its workspace is gone; whether it ran is not known";
            (NO_STATUS, None, Some("workspace_gone".to_owned()), Some(reason.to_owned()))
        }
        TaskOutcome::TimedOut | TaskOutcome::Interrupted | TaskOutcome::Cancelled => {
            (NO_STATUS, None, None, None)
        }
    };
    TaskReport {
        task_id: stored.task_id.clone(),
        success: stored.outcome == TaskOutcome::Exited { exit_code: 0 },
        exit_code,
        stdout: capture.stdout.text.clone(),
        stderr: capture.stderr.text.clone(),
        elapsed_secs: capture.elapsed_ms / 1_000,
        source_message_id: stored.message,
        outcome: stored.outcome.word().to_owned(),
        signal,
        code,
        reason,
        workdir: capture.workdir.clone(),
        elapsed_ms: capture.elapsed_ms,
        stdout_bytes: capture.stdout.total_bytes,
        stderr_bytes: capture.stderr.total_bytes,
        truncated: capture.stdout.truncated || capture.stderr.truncated,
        stdout_path: capture.stdout.path.clone(),
        stderr_path: capture.stderr.path.clone(),
        redelivered: None,
    }
}

/// A task with a member it was assigned to. The result is told if it was assigned to that one
/// alone: those of many would not fit an answer.
fn assigned(member: &str, stand: &Stand, alone: bool) -> AssignedTask {
    let (state, result) = match stand {
        Stand::New => ("queued", None),
        Stand::Pending => ("pending", None),
        Stand::Done(result, false) => ("done", Some(result)),
        Stand::Done(result, true) => ("received", Some(result)),
    };
    AssignedTask {
        to: member.to_owned(),
        state: state.to_owned(),
        repeat: *stand != Stand::New,
        result: result.filter(|_| alone).map(|result| report(result)),
    }
}
