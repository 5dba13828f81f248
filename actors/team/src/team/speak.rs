//! A message from a member to others.

use std::{collections::HashMap, iter, num::NonZeroU32, sync::Arc, time::Duration};

use chrono::Utc;
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use hivekeep_kernel::{Layer, MessageId, SessionId, ToolError};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{Card, Msg, Reply, Team, authorize, front::Around};
use crate::{
    codes,
    desk::{
        self,
        assignment::Assignment,
        ledger::{Stand, Task},
    },
    mailbox::{self, book::Message},
    refuse,
    shared::TeamShared,
};

/// For the inboxes of one message to write it. Above the journal's own deadline for whoever waits
/// for it.
const PATIENCE: Duration = Duration::from_secs(35);
/// For all members but the sender.
const ALL: &str = "*";

/// What a member wants to say.
pub(crate) struct Speech {
    pub(crate) session: SessionId,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) kind: String,
    pub(crate) content: String,
    /// It assigns this.
    pub(crate) task: Option<Assignment>,
    /// It goes the long way.
    pub(super) around: Option<Around>,
    /// Whether the session may, once that was asked.
    checked: Option<Result<(), ToolError>>,
}

impl Speech {
    pub(crate) fn new(
        session: SessionId,
        from: String,
        to: String,
        kind: String,
        content: String,
        task: Option<Assignment>,
    ) -> Self {
        Self { session, from, to, kind, content, task, around: None, checked: None }
    }
}

/// It was sent to these members, whose answers are to come.
pub(crate) struct Said {
    pub(crate) id: MessageId,
    answers: Vec<(String, Result<Answer, ToolError>)>,
}

impl Said {
    /// Each member it was for, and where its task stands if that is what it was.
    pub(crate) async fn outcomes(self) -> Vec<(String, Result<Option<Stand>, ToolError>)> {
        let deadline = Instant::now() + PATIENCE;
        let mut outcomes = Vec::with_capacity(self.answers.len());
        for (member, answer) in self.answers {
            let outcome = match answer {
                Ok(answer) => answer.wait(&member, deadline).await,
                Err(error) => Err(error),
            };
            outcomes.push((member, outcome));
        }
        outcomes
    }
}

/// An answer that a member's actors will give.
enum Answer {
    Message(oneshot::Receiver<Result<(), ToolError>>),
    Task(oneshot::Receiver<Result<Stand, ToolError>>),
}

impl Answer {
    async fn wait(self, member: &str, deadline: Instant) -> Result<Option<Stand>, ToolError> {
        let answer = async {
            match self {
                Self::Message(answer) => answer.await.map(|put| put.map(|()| None)),
                Self::Task(answer) => answer.await.map(|stand| stand.map(Some)),
            }
        };
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_ended)) => Err(unknown(member, "ended before it answered")),
            Err(_late) => Err(unknown(member, "did not answer in time")),
        }
    }
}

/// Messages of sessions that are not the owner, behind the one for which that is being asked. As
/// many as the calls that are admitted.
pub(super) type Strangers = HashMap<SessionId, Vec<(Speech, Reply<Said>)>>;

/// How fast each member may send. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Limiters(Arc<[DefaultDirectRateLimiter]>);

impl Limiters {
    /// Full buckets; none when senders are not slowed down.
    pub(super) fn new(house: &TeamShared, members: usize) -> Self {
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
            ToolError::new(Layer::Rate, codes::RATE_LIMITED, "this member sends too fast")
                .next("try again after retry_after_ms")
                .retry_after(wait)
        })
    }
}

impl Card {
    /// Goes on without waiting up to the inboxes, so that messages arrive in the order in which
    /// their calls did.
    ///
    /// # Errors
    /// Then it was sent to nobody.
    pub(super) fn say(&self, speech: Speech) -> Result<Said, ToolError> {
        let targets = self.targets(&speech)?;
        let Speech { from, to, kind, content, task, .. } = speech;
        let (id, at) = (MessageId::new(), Utc::now());
        let name = |number: usize| self.plan().members[number].name.clone();
        let answers = match task {
            None => {
                let message = Message { id, from, to, kind, content: content.into(), at };
                let put = |number: usize| {
                    let (put, answer) = oneshot::channel();
                    let sent = self.mailboxes[number].send(mailbox::Msg::Put(message.clone(), put));
                    (name(number), sent.map(|()| Answer::Message(answer)).map_err(Into::into))
                };
                targets.map(put).collect()
            }
            Some(work) => {
                let task = Arc::new(Task { message: id, from, at, bytes: content.len(), work });
                let assign = |number: usize| {
                    let (assigned, answer) = oneshot::channel();
                    let sent = self.desks[number].send(desk::Msg::Assign(task.clone(), assigned));
                    (name(number), sent.map(|()| Answer::Task(answer)).map_err(Into::into))
                };
                targets.map(assign).collect()
            }
        };
        Ok(Said { id, answers })
    }

    fn targets(&self, speech: &Speech) -> Result<impl Iterator<Item = usize> + use<>, ToolError> {
        self.ready()?;
        let from = self.member(&speech.from)?;
        let (targets, except) = match speech.to.as_str() {
            ALL if self.mailboxes.len() == 1 => {
                return Err(refuse::alone(&self.plan().name, &speech.from));
            }
            ALL => (0..self.mailboxes.len(), Some(from)),
            name => {
                let number = self.member(name)?;
                (number..number + 1, None)
            }
        };
        self.limiters.take(from)?;
        Ok(targets.filter(move |number| Some(*number) != except))
    }
}

impl Team {
    /// A session that is not the owner's may have become it: that is asked, once for all messages
    /// that come meanwhile, which stay in order.
    pub(super) fn speak(&mut self, mut speech: Speech, reply: Reply<Said>) {
        let session = speech.session;
        if let Some(checked) = speech.checked.take() {
            let behind = self.strangers.remove(&session).unwrap_or_default();
            for (speech, reply) in iter::once((speech, reply)).chain(behind) {
                let may = checked.clone().and_then(|()| match session == self.state.owner {
                    true => Ok(()),
                    // Taken over by another since.
                    false => Err(refuse::not_owner(&self.state.plan.name)),
                });
                // Whoever asked may have gone; so below.
                drop(reply.send(may.and_then(|()| self.card().say(speech))));
            }
            return;
        }
        if let Some(behind) = self.strangers.get_mut(&session) {
            return behind.push((speech, reply));
        }
        if session == self.state.owner {
            return drop(reply.send(self.card().say(speech)));
        }
        self.strangers.insert(session, Vec::new());
        let (house, team) = (self.seed.house.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let checked = authorize(&house, &team, session).await.map(drop);
            // A reply that is dropped tells its caller that the team is gone.
            let _ = team.send(Msg::Speak(Speech { checked: Some(checked), ..speech }, reply));
        });
    }
}

/// The inbox ended while it was writing, or its journal stands still.
fn unknown(member: &str, why: &str) -> ToolError {
    let message = format!("the inbox of `{member}` {why}");
    ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, message)
        .next("whether the message is in it is not known: have it receive before you repeat it")
        .detail("outcome", "unknown")
        .retryable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn inboxes_that_do_not_answer_are_waited_for_once_and_not_for_ever() {
        let (silent, one) = oneshot::channel();
        let (_silent, other) = oneshot::channel();
        let (_, ended) = oneshot::channel();
        let answers = [Answer::Message(one), Answer::Task(other), Answer::Message(ended)];
        let answers = answers.into_iter().map(|answer| ("b".to_owned(), Ok(answer))).collect();
        let begun = Instant::now();
        let outcomes = Said { id: MessageId::new(), answers }.outcomes().await;
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
        for (_, outcome) in outcomes {
            assert_eq!(outcome.expect_err("no answer").details["outcome"], "unknown");
        }
        drop(silent);
    }
}
