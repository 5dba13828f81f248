//! A message from a member to others: decided at once for each of them, in the order of the calls,
//! and answered by their logs.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Layer, MessageId, SessionId, ToolError};
use tokio::time::{Instant, timeout_at};

use super::{TeamActor, member::WhenWritten};
use crate::{
    codes,
    inbox::Message,
    refuse,
    tasks::{Assignment, Task, ledger::Stand},
};

/// Time limit of the logs of one message to write it. Above the journal's own deadline for whoever
/// waits for it.
const PATIENCE: Duration = Duration::from_secs(35);
/// Receiver that stands for all members but the sender.
const ALL: &str = "*";

/// A message that a member sends.
pub(crate) struct Outgoing {
    pub(crate) session: SessionId,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) kind: String,
    pub(crate) content: String,
    /// The task that it assigns, if it assigns one.
    pub(crate) task: Option<Assignment>,
}

/// A message that was decided for some members, and refused for others.
pub(crate) struct Sent {
    pub(crate) id: MessageId,
    pub(super) to: Vec<(String, Result<Decided, ToolError>)>,
}

/// A message that was decided for a member: where its task stands if it assigns one, when that is
/// written.
type Decided = (Option<Stand>, WhenWritten);

impl Sent {
    /// Each member it was for, and where its task stands if it assigns one.
    pub(crate) async fn outcomes(self) -> Vec<(String, Result<Option<Stand>, ToolError>)> {
        let deadline = Instant::now() + PATIENCE;
        let mut outcomes = Vec::with_capacity(self.to.len());
        for (member, decided) in self.to {
            let outcome = match decided {
                Ok((stand, written)) => match timeout_at(deadline, written).await {
                    Ok(written) => written.map(|()| stand).map_err(Into::into),
                    Err(_late) => Err(unknown(&member)),
                },
                Err(error) => Err(error),
            };
            outcomes.push((member, outcome));
        }
        outcomes
    }
}

/// Error of an inbox that did not answer in time, as when the journal is stuck.
fn unknown(member: &str) -> ToolError {
    let message = format!("the inbox of `{member}` did not answer in time");
    ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, message)
        .next("whether the message is in it is not known: have it receive before you repeat it")
        .detail("outcome", "unknown")
        .retryable()
}

impl TeamActor {
    /// Decides a message for all members it is to.
    ///
    /// # Errors
    /// Then it was sent to nobody.
    pub(super) fn send(&self, message: Outgoing) -> Result<Sent, ToolError> {
        let targets = self.targets(&message)?;
        let Outgoing { from, to, kind, content, task, .. } = message;
        let (id, at) = (MessageId::new(), Utc::now());
        let members = targets.filter_map(|number| self.members.get(number));
        let to = match task {
            None => {
                let message = Arc::new(Message { id, from, to, kind, content: content.into(), at });
                let put = |member: &super::LiveMember| {
                    (member.name.clone(), member.put(&message).map(|written| (None, written)))
                };
                members.map(put).collect()
            }
            Some(work) => {
                let task = Arc::new(Task { message: id, from, at, bytes: content.len(), work });
                let assign = |member: &super::LiveMember| {
                    let assigned = member.assign(&task);
                    (member.name.clone(), assigned.map(|(stand, written)| (Some(stand), written)))
                };
                members.map(assign).collect()
            }
        };
        Ok(Sent { id, to })
    }

    /// The numbers of those that a message is for, once its sender may send it.
    fn targets(
        &self,
        message: &Outgoing,
    ) -> Result<impl Iterator<Item = usize> + use<>, ToolError> {
        self.state.ready()?;
        let from = self.state.member(&message.from)?;
        let count = self.state.plan.members.len();
        let (targets, except) = match message.to.as_str() {
            ALL if count == 1 => {
                return Err(refuse::alone(&self.state.plan.name, &message.from));
            }
            ALL => (0..count, Some(from)),
            name => {
                let number = self.state.member(name)?;
                (number..number + 1, None)
            }
        };
        self.limiters.take(from)?;
        Ok(targets.filter(move |number| Some(*number) != except))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_journal_that_stands_still_is_waited_for_once_and_not_for_ever() {
        let still = || (None, std::future::pending().boxed());
        let to = [Ok(still()), Ok(still()), Ok((None, async { Ok(()) }.boxed()))];
        let to = to.into_iter().map(|decided| ("b".to_owned(), decided)).collect();
        let begun = Instant::now();
        let outcomes = Sent { id: MessageId::new(), to }.outcomes().await;
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
        let [first, second, written] = &outcomes[..] else { panic!("three") };
        for (_, outcome) in [first, second] {
            assert_eq!(outcome.as_ref().expect_err("no answer").details["outcome"], "unknown");
        }
        assert_eq!(written.1.as_ref().ok(), Some(&None));
    }
}
