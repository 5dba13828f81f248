//! Request to a provider's actor, with the channels of its answer.

use hivekeep_kernel::ports::ModelToolCall;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    backend::ModelQuestion,
    failure::WireFailure,
    wire::{WireEnd, WireVectors},
};

/// Whole answer to a question.
#[derive(Debug)]
pub(crate) struct AnsweredQuestion {
    pub(crate) text: String,
    pub(crate) calls: Vec<ModelToolCall>,
    pub(crate) end: WireEnd,
    pub(crate) attempts: u32,
    /// Earlier attempts that may have cost something.
    pub(crate) lost: u32,
}

/// Work of a request: a question to answer, or texts to embed.
pub(crate) enum Work {
    Question {
        question: Box<ModelQuestion>,
        deltas: mpsc::Sender<hivekeep_kernel::ports::ModelDelta>,
        reply: oneshot::Sender<Result<AnsweredQuestion, WireFailure>>,
    },
    Texts {
        model: String,
        texts: Vec<String>,
        reply: oneshot::Sender<Result<WireVectors, WireFailure>>,
    },
}

/// A request with its deadline.
pub(crate) struct ProviderJob {
    pub(crate) work: Work,
    pub(crate) deadline: Instant,
}

impl ProviderJob {
    /// Whether nobody waits for the answer.
    pub(crate) fn gone(&self) -> bool {
        match &self.work {
            Work::Question { deltas, reply, .. } => deltas.is_closed() || reply.is_closed(),
            Work::Texts { reply, .. } => reply.is_closed(),
        }
    }

    /// Answers with a failure.
    pub(crate) fn refuse(self, failure: WireFailure) {
        // The asker may have gone.
        match self.work {
            Work::Question { reply, .. } => drop(reply.send(Err(failure))),
            Work::Texts { reply, .. } => drop(reply.send(Err(failure))),
        }
    }
}
