//! The answering end of a tool call, in the manner of a promise: it is kept once, or broken, and then
//! it says by itself whether anything can have been done.

use std::fmt;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::{Addressing, AskError, ToolError, ToolSpec};

/// Result of a call.
pub type CallResult = Result<Value, ToolError>;

type Ended = Box<dyn FnOnce(&CallResult) + Send + Sync>;

/// The answering end of a call. Dropped unanswered, it answers `actor_unavailable`: with the detail
/// `outcome` as `nothing_done` while no handler has begun, and as `unknown` from then on.
// One pointer: calls lie in every mailbox. Taken by the answer.
pub struct Responder(Option<Box<Promise>>);

struct Promise {
    caller: oneshot::Sender<CallResult>,
    ended: Option<Ended>,
    /// The actor or the kind of actors, as the tool's declaration names it.
    actor: &'static str,
    begun: bool,
}

impl Responder {
    /// The end that answers `caller`. `ended` is called once, when the work has ended and before the
    /// caller hears of it.
    pub fn new(
        tool: &ToolSpec,
        caller: oneshot::Sender<CallResult>,
        ended: impl FnOnce(&CallResult) + Send + Sync + 'static,
    ) -> Self {
        let actor = match tool.addressing {
            Addressing::Singleton(name) => name,
            Addressing::Field { kind, .. } => kind,
        };
        Self(Some(Box::new(Promise { caller, ended: Some(Box::new(ended)), actor, begun: false })))
    }

    /// Answers; the caller may have gone.
    pub fn answer(mut self, outcome: CallResult) {
        if let Some(promise) = self.0.take() {
            promise.answer(outcome);
        }
    }

    /// A handler takes the call: from here on something may have been done.
    pub fn begin(&mut self) {
        if let Some(promise) = &mut self.0 {
            promise.begun = true;
        }
    }
}

impl Promise {
    fn answer(self, outcome: CallResult) {
        if let Some(ended) = self.ended {
            ended(&outcome);
        }
        // The caller may have gone.
        drop(self.caller.send(outcome));
    }

    fn broken(self) {
        let error = ToolError::from(AskError::Dropped(self.actor.to_owned()));
        let error = if self.begun {
            error
                .next("its actor ended before it answered; see what was done before you repeat it")
                .detail("outcome", "unknown")
        } else {
            error.detail("outcome", "nothing_done")
        };
        self.answer(Err(error));
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(promise) = self.0.take() {
            promise.broken();
        }
    }
}

impl From<oneshot::Sender<CallResult>> for Responder {
    /// For calls that pass no admission, as tests make them.
    fn from(caller: oneshot::Sender<CallResult>) -> Self {
        Self(Some(Box::new(Promise { caller, ended: None, actor: "the actor", begun: false })))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}
