//! Addresses that stay good when the actor behind them is restarted.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::{ActorStatus, Layer, ToolError, codes};

/// Nobody is at the address now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {state}")]
pub struct Unavailable {
    path: String,
    state: &'static str,
}

/// A question that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nobody took the message.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The actor ended, or dropped the question.
    #[error("{0} did not answer")]
    Dropped(String),
    /// No answer in time.
    #[error("{path} did not answer within {waited_ms} ms")]
    Deadline {
        /// Whom it was asked.
        path: String,
        /// How long.
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

impl From<Unavailable> for ToolError {
    fn from(error: Unavailable) -> Self {
        AskError::from(error).into()
    }
}

/// Where messages for one place in the tree go. Cheap to clone.
pub struct Address<M> {
    slot: Arc<ArcSwapOption<ActorRef<M>>>,
    probe: Arc<ActorStatus>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot.clone(), probe: self.probe.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.probe.path())
    }
}

impl<M: Send + 'static> Address<M> {
    /// An address at which nobody is yet.
    pub fn vacant(probe: Arc<ActorStatus>) -> Self {
        Self { slot: Arc::default(), probe }
    }

    /// The place's vital signs.
    pub fn probe(&self) -> &Arc<ActorStatus> {
        &self.probe
    }

    /// Puts a message into the mailbox, also of an actor that is still starting; it
    /// is dropped if that start fails. Mailboxes are not bounded here: whoever
    /// sends on behalf of clients passes the registry's admission first.
    ///
    /// # Errors
    /// When no actor is at the address; the message is dropped.
    pub fn send(&self, message: M) -> Result<(), Unavailable> {
        let unavailable = |state| Unavailable { path: self.probe.path().to_owned(), state };
        let actor = self.slot.load();
        let actor = actor.as_ref().ok_or_else(|| unavailable("not running"))?;
        self.probe.sent();
        actor.cast(message).map_err(|_| {
            self.probe.unsent(1);
            unavailable("stopping")
        })
    }

    /// Asks and waits for the answer, at most `deadline`.
    ///
    /// # Errors
    /// When nobody answers in time.
    pub async fn ask<T>(
        &self,
        deadline: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> M,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(question(reply))?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AskError::Dropped(self.probe.path().to_owned())),
            Err(_) => Err(AskError::Deadline {
                path: self.probe.path().to_owned(),
                waited_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    pub(crate) fn occupy(&self, actor: ActorRef<M>) {
        // What an earlier actor left unread is gone with its mailbox.
        self.probe.emptied();
        self.slot.store(Some(Arc::new(actor)));
    }

    /// Leaves the address if `actor` still holds it.
    pub(crate) fn vacate(&self, actor: ractor::ActorId) {
        if self.slot.load().as_ref().is_some_and(|held| held.get_id() == actor) {
            self.slot.store(None);
        }
    }
}
