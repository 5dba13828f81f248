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
    Message(Msg),
    /// Somebody who wants it to be awake, and hears how long that took in milliseconds.
    Awake(oneshot::Sender<Result<u64, ToolError>>),
}

impl Waiting {
    /// Whether an answer would still be heard.
    pub(super) fn is_heard(&self) -> bool {
        let lives = |cx: &CallCx| !cx.cancel.is_cancelled() && !cx.remaining().is_zero();
        match self {
            Self::Message(Msg::Tool(call)) => lives(&call.cx),
            Self::Message(Msg::Enter(cx, reply)) => lives(cx) && !reply.is_closed(),
            Self::Message(Msg::Exec(request)) => lives(&request.cx) && !request.reply.is_closed(),
            Self::Message(Msg::Tasks(TaskMsg::Access { reply, .. })) => !reply.is_closed(),
            Self::Message(_) => true,
            Self::Awake(reply) => !reply.is_closed(),
        }
    }

    /// Answers that it is not awake.
    pub(super) fn refuse(self, error: ToolError) {
        match self {
            Self::Message(Msg::Tool(call)) => call.reply.answer(Err(error)),
            Self::Message(Msg::Enter(_, reply)) => drop(reply.send(Err(error))),
            Self::Message(Msg::Exec(request)) => drop(request.reply.send(Err(error))),
            Self::Message(Msg::Tasks(TaskMsg::Access { reply, .. })) => {
                drop(reply.send(Err(error)))
            }
            Self::Message(_) => {}
            Self::Awake(reply) => drop(reply.send(Err(error))),
        }
    }
}
