//! Who waits for a machine to be awake.

use std::collections::VecDeque;

use hivekeep_kernel::{CallCx, ToolError};
use tokio::{sync::oneshot, time::Instant};

use super::messages::{Msg, TaskMsg};

/// What is known of the sleep of a machine beside the records.
pub(super) struct Sleeping {
    pub(super) waiting: VecDeque<Waiting>,
    /// When something was last wanted of the guest.
    pub(super) used_at: Instant,
}

impl Default for Sleeping {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), used_at: Instant::now() }
    }
}

/// Who waits.
pub(super) enum Waiting {
    /// A message that is judged anew.
    Message(Box<Msg>),
    /// Somebody who wants it to be awake, and hears how long that took in milliseconds.
    Awake(oneshot::Sender<Result<u64, ToolError>>),
}

impl Waiting {
    /// Whether an answer would still be heard.
    pub(super) fn is_heard(&self) -> bool {
        let lives = |cx: &CallCx| !cx.cancel.is_cancelled() && !cx.remaining().is_zero();
        let message = match self {
            Self::Message(message) => &**message,
            Self::Awake(reply) => return !reply.is_closed(),
        };
        match message {
            Msg::Tool(call) => lives(&call.cx),
            Msg::Enter(cx, reply) => lives(cx) && !reply.is_closed(),
            Msg::Exec(request) => lives(&request.cx) && !request.reply.is_closed(),
            Msg::Tasks(TaskMsg::Access { reply, .. }) => !reply.is_closed(),
            _ => true,
        }
    }

    /// Answers that it is not awake.
    pub(super) fn refuse(self, error: ToolError) {
        let message = match self {
            Self::Message(message) => *message,
            Self::Awake(reply) => return drop(reply.send(Err(error))),
        };
        match message {
            Msg::Tool(call) => call.reply.answer(Err(error)),
            Msg::Enter(_, reply) => drop(reply.send(Err(error))),
            Msg::Exec(request) => drop(request.reply.send(Err(error))),
            Msg::Tasks(TaskMsg::Access { reply, .. }) => drop(reply.send(Err(error))),
            _ => {}
        }
    }
}
