//! Calls that wait for a machine to be awake: held back in order, and judged again when it is.

use std::collections::VecDeque;

use hivekeep_kernel::{Address, CallCx, ToolError};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    ledger::Ledger,
    messages::{GuestMsg, Msg, TaskMsg},
};

/// Calls that may wait for one machine.
const MAX_WAITING: usize = 256;

/// Unrecorded state of a machine's sleep.
pub(crate) struct Sleeping {
    waiting: VecDeque<HeldCall>,
    /// When something was last wanted of the guest.
    pub(crate) used_at: Instant,
    /// True if a pause, under way or in force, ends by any use.
    pub(crate) rests: bool,
}

impl Sleeping {
    pub(crate) fn of(ledger: &Ledger) -> Self {
        Self { waiting: VecDeque::new(), used_at: Instant::now(), rests: ledger.rests }
    }

    /// Queues a caller until the machine is awake; true if there was room. Without room the caller is
    /// refused.
    pub(crate) fn queue(&mut self, waiting: HeldCall, busy: impl FnOnce() -> ToolError) -> bool {
        self.waiting.retain(HeldCall::is_heard);
        if self.waiting.len() >= MAX_WAITING {
            waiting.refuse(busy());
            return false;
        }
        self.waiting.push_back(waiting);
        true
    }

    /// Whether anybody still waits for the machine.
    pub(crate) fn is_awaited(&mut self) -> bool {
        self.waiting.retain(HeldCall::is_heard);
        !self.waiting.is_empty()
    }

    /// Answers the waiting callers, and sends held messages to the mailbox again.
    pub(crate) fn awake(&mut self, mailbox: &Address<Msg>, took_ms: Result<u64, ToolError>) {
        for waiting in std::mem::take(&mut self.waiting) {
            match (waiting, &took_ms) {
                (HeldCall::Awake(reply), _) => drop(reply.send(took_ms.clone())),
                // Queued behind what is in the mailbox by now; their order does not matter.
                (HeldCall::Message(message), Ok(_)) => drop(mailbox.send(*message)),
                (waiting, Err(error)) => waiting.refuse(error.clone()),
            }
        }
    }
}

/// A call that waits.
pub(crate) enum HeldCall {
    /// A message that is judged anew.
    Message(Box<Msg>),
    /// A caller who wants the machine to be awake, answered with the milliseconds that the wake took.
    Awake(oneshot::Sender<Result<u64, ToolError>>),
}

impl HeldCall {
    /// Whether anybody still waits for the answer.
    fn is_heard(&self) -> bool {
        let lives = |cx: &CallCx| !cx.cancel.is_cancelled() && !cx.remaining().is_zero();
        let message = match self {
            Self::Message(message) => &**message,
            Self::Awake(reply) => return !reply.is_closed(),
        };
        match message {
            Msg::Tool(call) => lives(&call.cx),
            Msg::Guest(GuestMsg::Enter(cx, reply)) => lives(cx) && !reply.is_closed(),
            Msg::Guest(GuestMsg::Exec(request)) => lives(&request.cx) && !request.reply.is_closed(),
            Msg::Tasks(TaskMsg::Access { reply, .. }) => !reply.is_closed(),
            _ => true,
        }
    }

    /// Answers with the error.
    fn refuse(self, error: ToolError) {
        let message = match self {
            Self::Message(message) => *message,
            Self::Awake(reply) => return drop(reply.send(Err(error))),
        };
        match message {
            Msg::Tool(call) => call.reply.answer(Err(error)),
            Msg::Guest(GuestMsg::Enter(_, reply)) => drop(reply.send(Err(error))),
            Msg::Guest(GuestMsg::Exec(request)) => drop(request.reply.send(Err(error))),
            Msg::Tasks(TaskMsg::Access { reply, .. }) => drop(reply.send(Err(error))),
            _ => {}
        }
    }
}
