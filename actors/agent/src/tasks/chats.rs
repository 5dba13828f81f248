//! Chats: executions that wait for their next message, as an editor is shown them.

use std::collections::{BTreeSet, VecDeque};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, SessionId, User};
use hivekeep_manifest::agent::AgentBudget;
use hivekeep_ports::{
    ChatEvents, ChatMessage, ChatPlan, ChatRole, ChatSession, ChatStatus, ChatStep, ChatStepStatus,
    Chats,
};
use hivekeep_runtime::runs::{RunCaller, RunCursor, RunStatus, SequencedEvent};

use super::{Answer, View, waiting_for};
use crate::{
    codes,
    execution::{
        plan::ExecutionRequest,
        state::{AskedCall, CallEnd},
    },
    tools::AgentService,
};

#[async_trait]
impl Chats for AgentService {
    async fn open(&self, cx: &CallCx, name: &str) -> Answer<ChatSession> {
        let request =
            ExecutionRequest { chat: Some(name.to_owned()), ..ExecutionRequest::default() };
        let agent = &self.options.chat_agent;
        let started = self.start(cx, agent, None, request, AgentBudget::default()).await?;
        let id = started.execution_id.to_string();
        let asks = self.shared.children.awaiting_approval();
        Ok(session(&self.runs.get(self.run_caller(cx), &id)?, &asks))
    }

    async fn list(&self, cx: &CallCx) -> Answer<Vec<ChatSession>> {
        let user = self.caller(cx)?.user;
        let (rows, _) = self.runs.list(self.run_caller(cx), None, usize::MAX);
        let own = rows.iter().map(|(_, view)| view).filter(|view| {
            let begun = &view.state.begun;
            begun.plan.chat.is_some() && begun.user == user
        });
        let asks = self.shared.children.awaiting_approval();
        let mut chats: Vec<_> = own.map(|view| session(view, &asks)).collect();
        chats.reverse();
        Ok(chats)
    }

    async fn send(&self, cx: &CallCx, chat: &str, message: &str) -> Answer<Option<DateTime<Utc>>> {
        match self.chat(cx, chat)? {
            Some(_) => self.say(cx, chat, Some(message.to_owned()), None, false).await.map(Some),
            None => Ok(None),
        }
    }

    async fn messages(
        &self,
        cx: &CallCx,
        chat: &str,
        limit: usize,
    ) -> Answer<Option<Vec<ChatMessage>>> {
        if self.chat(cx, chat)?.is_none() {
            return Ok(None);
        }
        let (caller, mut cursor) = (self.run_caller(cx), RunCursor::default());
        let mut newest = VecDeque::new();
        loop {
            let events = self.runs.read_on(caller, chat, &mut cursor).await?;
            if events.is_empty() {
                return Ok(Some(newest.into()));
            }
            newest.extend(events.into_iter().filter_map(message));
            newest.drain(..newest.len().saturating_sub(limit));
        }
    }

    fn events(&self, user: User, chat: &str, after: u64) -> Option<Box<dyn ChatEvents>> {
        let caller = RunCaller { user, operator: false };
        let view = self.runs.get(caller, chat).ok()?;
        view.state.begun.plan.chat.as_ref()?;
        self.runs.feed(user, chat, after)
    }

    async fn plan(&self, cx: &CallCx, chat: &str) -> Answer<Option<ChatPlan>> {
        let Some(view) = self.chat(cx, chat)? else { return Ok(None) };
        let status = session(&view, &self.shared.children.awaiting_approval()).status;
        Ok(Some(ChatPlan { status, steps: steps(&view) }))
    }
}

impl AgentService {
    /// A chat of the caller's own user.
    fn chat(&self, cx: &CallCx, id: &str) -> Answer<Option<View>> {
        let user = self.caller(cx)?.user;
        let view = match self.runs.get(self.run_caller(cx), id) {
            Ok(view) => view,
            Err(error) if error.is(codes::EXECUTION_NOT_FOUND) => return Ok(None),
            Err(error) => return Err(error),
        };
        let begun = &view.state.begun;
        let own = begun.plan.chat.is_some() && begun.user == user;
        Ok(own.then_some(view))
    }
}

/// Chat as an editor is shown it, given the sessions that wait for an approval.
fn session(view: &View, asks: &BTreeSet<SessionId>) -> ChatSession {
    let begun = &view.state.begun;
    let waits = waiting_for(view, asks).is_some();
    ChatSession {
        id: begun.id.to_string(),
        name: begun.plan.chat.clone().unwrap_or_default(),
        status: match view.status() {
            RunStatus::Pending | RunStatus::Running if waits => ChatStatus::Waiting,
            RunStatus::Pending | RunStatus::Running => ChatStatus::Running,
            RunStatus::Completed => ChatStatus::Completed,
            RunStatus::Failed => ChatStatus::Failed,
            RunStatus::Cancelled => ChatStatus::Cancelled,
        },
        created_at: begun.at,
    }
}

/// Message that an event is: what was said, or why nothing was.
fn message(event: SequencedEvent) -> Option<ChatMessage> {
    let SequencedEvent { recorded_at, event, .. } = event;
    let (role, text) = match event.event_type {
        "execution_started" => (ChatRole::User, &event.payload["intent"]),
        "message_received" => (ChatRole::User, &event.payload["text"]),
        "llm_interaction" => (ChatRole::Assistant, &event.payload["text"]),
        "iteration_failed" | "execution_failed" => {
            (ChatRole::Error, &event.payload["error"]["message"])
        }
        _ => return None,
    };
    let content = text.as_str().filter(|text| !text.trim().is_empty())?.to_owned();
    Some(ChatMessage { role, content, timestamp: recorded_at })
}

/// Calls of the turn that runs.
fn steps(view: &View) -> Vec<ChatStep> {
    let state = &view.state;
    let current = state.iteration().filter(|_| state.end.is_none());
    let Some(turn) = current.and_then(|iteration| iteration.turns.last()) else {
        return Vec::new();
    };
    let due = turn.due();
    let step = |(at, call): (usize, &AskedCall)| ChatStep {
        name: call.name.clone(),
        status: match turn.results[at].as_deref() {
            Some(CallEnd::Returned { .. }) => ChatStepStatus::Completed,
            Some(CallEnd::Failed { .. } | CallEnd::Interrupted) => ChatStepStatus::Failed,
            None if due.contains(&at) => ChatStepStatus::Running,
            None => ChatStepStatus::Pending,
        },
    };
    turn.answer.calls.iter().enumerate().map(step).collect()
}
