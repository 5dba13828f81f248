//! Stable actor addresses: an address stays valid when the actor behind it is restarted.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::{ActorStatus, Layer, ToolError, codes};

/// Error: no actor is at the address now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {state}")]
pub struct ActorUnavailable {
    path: String,
    state: &'static str,
}

/// Failure of a request that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No actor took the message.
    #[error(transparent)]
    Unavailable(#[from] ActorUnavailable),
    /// The actor ended, or dropped the request.
    #[error("{0} did not answer")]
    Dropped(String),
    /// The answer did not come in time.
    #[error("{path} did not answer within {waited_ms} ms")]
    Deadline {
        /// Path of the actor that was asked.
        path: String,
        /// Time waited.
        waited_ms: u64,
    },
}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        Self::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, error.to_string())
            .next("try again; `hivekeep ps` shows the actor's state")
            .retry_after(Duration::from_millis(500))
    }
}

impl From<ActorUnavailable> for ToolError {
    fn from(error: ActorUnavailable) -> Self {
        AskError::from(error).into()
    }
}

/// Stable address of one place in the actor tree. Cheap to clone.
pub struct Address<M> {
    slot: Arc<ArcSwapOption<ActorRef<M>>>,
    status: Arc<ActorStatus>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot.clone(), status: self.status.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.status.path())
    }
}

impl<M: Send + 'static> Address<M> {
    /// Makes an address with no actor behind it yet.
    pub fn vacant(status: Arc<ActorStatus>) -> Self {
        Self { slot: Arc::default(), status }
    }

    /// Status of the place.
    pub fn probe(&self) -> &Arc<ActorStatus> {
        &self.status
    }

    /// True while an actor is at the address.
    pub fn is_occupied(&self) -> bool {
        self.slot.load().is_some()
    }

    /// Puts a message into the mailbox, also of an actor that is still starting; it is dropped if
    /// that start fails. Mailboxes are not bounded here: whoever sends on behalf of clients passes
    /// the registry's admission first.
    ///
    /// # Errors
    /// Fails when no actor is at the address; the message is dropped.
    pub fn send(&self, message: M) -> Result<(), ActorUnavailable> {
        let unavailable = |state| ActorUnavailable { path: self.status.path().to_owned(), state };
        let actor = self.slot.load();
        let actor = actor.as_ref().ok_or_else(|| unavailable("not running"))?;
        self.status.sent();
        actor.cast(message).map_err(|_| {
            self.status.unsent(1);
            unavailable("stopping")
        })
    }

    /// Sends a request and waits for the answer, at most `deadline`.
    ///
    /// # Errors
    /// Fails when no answer comes in time.
    pub async fn ask<T>(
        &self,
        deadline: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> M,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(question(reply))?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AskError::Dropped(self.status.path().to_owned())),
            Err(_) => Err(AskError::Deadline {
                path: self.status.path().to_owned(),
                waited_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    pub(crate) fn occupy(&self, actor: ActorRef<M>) {
        // Messages that an earlier actor left unread are gone with its mailbox.
        self.status.emptied();
        self.slot.store(Some(Arc::new(actor)));
    }

    /// Vacates the address if `actor` still occupies it.
    pub(crate) fn vacate(&self, actor: ractor::ActorId) {
        if self.slot.load().as_ref().is_some_and(|current| current.get_id() == actor) {
            self.slot.store(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Census, Context, Entity, Fault, RestartPolicy, entity::spawn_root};

    enum Asked {
        Answer(oneshot::Sender<u32>),
        Drop(oneshot::Sender<u32>),
        Keep(oneshot::Sender<u32>),
        Stop,
    }

    /// Answers, or not.
    struct Oracle(Context<Asked>, Vec<oneshot::Sender<u32>>);

    impl Entity for Oracle {
        type Msg = Asked;
        type Args = ();

        async fn start((): (), me: Context<Asked>) -> Result<Self, Fault> {
            Ok(Self(me, Vec::new()))
        }

        fn handle(&mut self, asked: Asked) -> Result<(), Fault> {
            match asked {
                Asked::Answer(reply) => drop(reply.send(7)),
                Asked::Drop(reply) => drop(reply),
                Asked::Keep(reply) => self.1.push(reply),
                Asked::Stop => self.0.stop("it was told to"),
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_question_is_answered_or_says_why_not() {
        let address =
            Address::vacant(Census::default().probe("oracle", "oracle", RestartPolicy::TEMPORARY));
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(30));
        let path = || "oracle".to_owned();
        let vacant = AskError::Unavailable(ActorUnavailable { path: path(), state: "not running" });
        assert!(!address.is_occupied());
        assert_eq!(address.ask(long, Asked::Answer).await, Err(vacant.clone()));
        let (_, ended) = spawn_root::<Oracle>(&address, ()).await.expect("spawns");
        assert!(address.is_occupied());
        assert_eq!(address.ask(long, Asked::Answer).await, Ok(7));
        assert_eq!(address.ask(long, Asked::Drop).await, Err(AskError::Dropped(path())));
        let late = AskError::Deadline { path: path(), waited_ms: 30 };
        assert_eq!(address.ask(short, Asked::Keep).await, Err(late));
        assert_eq!(address.probe().depth(), 0);
        // Another actor that was there before is gone; this one stays.
        address.vacate(ractor::ActorId::Local(u64::MAX));
        assert!(address.is_occupied());
        address.send(Asked::Stop).expect("it is there");
        ended.await.expect("it ends");
        assert_eq!(address.ask(long, Asked::Answer).await, Err(vacant.clone()));
        assert!(!address.is_occupied());
        let told = ToolError::from(vacant);
        assert!(
            told.is(codes::ACTOR_UNAVAILABLE) && told.retryable && told.retry_after_ms == Some(500)
        );
    }
}
