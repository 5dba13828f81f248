//! A message from a member to others.

use std::{num::NonZeroU32, sync::Arc};

use chrono::Utc;
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use hivekeep_kernel::{Layer, MessageId, SessionId, ToolError};
use tokio::sync::oneshot;

use super::{Msg, Reply, Team, authorize};
use crate::{
    desk::{
        self,
        assignment::Assignment,
        ledger::{Stand, Task},
    },
    house::House,
    mailbox::{self, book::Message},
};

/// For all members but the sender.
const ALL: &str = "*";

/// What a member wants to say.
#[derive(Debug, Clone)]
pub(crate) struct Speech {
    pub(crate) session: SessionId,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) kind: String,
    pub(crate) content: String,
    /// It assigns this.
    pub(crate) task: Option<Assignment>,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) id: MessageId,
    /// Each member it was for, and where its task stands if that is what it was.
    pub(crate) outcomes: Vec<(String, Result<Option<Stand>, ToolError>)>,
}

/// An answer that a member's actors will give.
enum Answer {
    Message(oneshot::Receiver<Result<(), ToolError>>),
    Task(oneshot::Receiver<Result<Stand, ToolError>>),
}

impl Answer {
    async fn wait(self, member: &str) -> Result<Option<Stand>, ToolError> {
        match self {
            Self::Message(answer) => answer.await.map(|put| put.map(|()| None)),
            Self::Task(answer) => answer.await.map(|stand| stand.map(Some)),
        }
        .unwrap_or_else(|_ended| Err(unknown(member)))
    }
}

/// How fast each member may send.
pub(super) struct Limiters(Vec<DefaultDirectRateLimiter>);

impl Limiters {
    /// Full buckets; none when senders are not slowed down.
    pub(super) fn new(house: &House, members: usize) -> Self {
        let above_zero = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_minute(above_zero(house.options.messages_per_minute))
            .allow_burst(above_zero(house.options.message_burst));
        let members = if house.rates { members } else { 0 };
        Self((0..members).map(|_| RateLimiter::direct(quota)).collect())
    }

    fn take(&self, member: usize) -> Result<(), ToolError> {
        let Some(limiter) = self.0.get(member) else { return Ok(()) };
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            ToolError::new(Layer::Rate, "rate_limited", "this member sends too fast")
                .next("try again after retry_after_ms")
                .retry_after(wait)
        })
    }
}

impl Team {
    /// Goes on without waiting up to the inboxes, so that messages arrive in the order in which
    /// their calls did.
    pub(super) fn speak(&mut self, speech: Speech, reply: Reply<Said>) {
        if speech.session != self.state.owner {
            return self.speak_if_owner(speech, reply);
        }
        let targets = match self.targets(&speech) {
            Ok(targets) => targets,
            // Whoever asked may have gone.
            Err(error) => return drop(reply.send(Err(error))),
        };
        let Speech { from, to, kind, content, task, .. } = speech;
        let (id, at) = (MessageId::new(), Utc::now());
        let task = task.map(|work| {
            let (from, bytes) = (from.clone(), content.len());
            Arc::new(Task { message: id, from, at, bytes, work })
        });
        let message = Message { id, from, to, kind, content: content.into(), at };
        let mut puts = Vec::new();
        for number in targets {
            let member = self.state.plan.members[number].name.clone();
            let (sent, answer) = match &task {
                None => {
                    let (put, answer) = oneshot::channel();
                    let put = mailbox::Msg::Put(message.clone(), put);
                    (self.mailboxes[number].send(put), Answer::Message(answer))
                }
                Some(task) => {
                    let (assigned, answer) = oneshot::channel();
                    let assign = desk::Msg::Assign(task.clone(), assigned);
                    (self.desks[number].send(assign), Answer::Task(answer))
                }
            };
            puts.push((member, sent, answer));
        }
        let _detached = self.me.workers.spawn(async move {
            let mut outcomes = Vec::new();
            for (member, sent, answer) in puts {
                let outcome = match sent {
                    Err(error) => Err(error.into()),
                    Ok(()) => answer.wait(&member).await,
                };
                outcomes.push((member, outcome));
            }
            drop(reply.send(Ok(Said { id, outcomes })));
        });
    }

    fn targets(&self, speech: &Speech) -> Result<Vec<usize>, ToolError> {
        let card = self.card();
        card.ready()?;
        let from = card.member(&speech.from)?;
        let targets = match speech.to.as_str() {
            ALL => (0..self.mailboxes.len()).filter(|number| *number != from).collect(),
            name => vec![card.member(name)?],
        };
        self.limiters.take(from)?;
        Ok(targets)
    }

    /// Comes back once it is known that the session may.
    fn speak_if_owner(&self, speech: Speech, reply: Reply<Said>) {
        let (house, team) = (self.seed.house.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            match authorize(&house, &team, speech.session).await {
                // A reply that is dropped tells its caller that the team is gone.
                Ok(_) => drop(team.send(Msg::Speak(speech, reply))),
                Err(error) => drop(reply.send(Err(error))),
            }
        });
    }
}

/// The inbox ended while it was writing.
fn unknown(member: &str) -> ToolError {
    let message = format!("the inbox of `{member}` ended before it answered");
    ToolError::new(Layer::Actor, "actor_unavailable", message)
        .next("whether the message is in it is not known: have it receive before you repeat it")
        .detail("outcome", "unknown")
        .retryable()
}
