//! Calls that wait for a machine to be awake.

use std::collections::VecDeque;

use hivekeep_kernel::{CallCx, ToolError};
use tokio::{sync::oneshot, time::Instant};

use super::messages::{Msg, TaskMsg};

/// Unrecorded state of a machine's sleep.
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

/// A call that waits.
pub(super) enum Waiting {
    /// A message that is judged anew.
    Message(Box<Msg>),
    /// A caller who wants the machine to be awake, answered with the milliseconds that the wake took.
    Awake(oneshot::Sender<Result<u64, ToolError>>),
}

impl Waiting {
    /// Whether anybody still waits for the answer.
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

    /// Answers with the error.
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
