//! Calls that wait for a machine to be awake: held back in order, and judged again when it is.
//!
//! Messages that need the guest of a parked machine wake it, once, and are held back meanwhile, as
//! are those that come while it is being parked. Each call keeps its own deadline; calls that
//! nobody waits for any more wake nothing.

use hivekeep_kernel::{ToolCall, ToolError};
use tokio::time::Instant;

use super::{Msg, TaskMsg, Workspace, waiting::Waiting};
use crate::{activity::Activity, phase::Phase, tools};

/// Calls that may wait for one machine.
const MAX_WAITING: usize = 256;

impl Workspace {
    /// Holds a message back that needs the guest of a machine that is parked, parking or waking;
    /// returns any other message.
    pub(super) fn hold_back(&mut self, message: Msg) -> Option<Msg> {
        if !self.wants_guest(&message) {
            return Some(message);
        }
        self.sleeping.used_at = Instant::now();
        let moves = matches!(self.activity, Activity::Parking | Activity::Waking);
        if self.phase != Phase::Parked && !moves {
            return Some(message);
        }
        self.wait_awake(Waiting::Message(Box::new(message)));
        None
    }

    /// Queues a caller until the machine is awake, and wakes it if that is due.
    pub(super) fn wait_awake(&mut self, waiting: Waiting) {
        self.sleeping.waiting.retain(Waiting::is_heard);
        if self.sleeping.waiting.len() >= MAX_WAITING {
            return waiting.refuse(self.phase.busy());
        }
        self.sleeping.waiting.push_back(waiting);
        self.wake_if_wanted();
    }

    /// Whether anybody still waits for the machine.
    pub(super) fn is_awaited(&mut self) -> bool {
        self.sleeping.waiting.retain(Waiting::is_heard);
        !self.sleeping.waiting.is_empty()
    }

    /// Answers the waiting callers, and sends held messages to the mailbox again.
    pub(super) fn awake(&mut self, took_ms: Result<u64, ToolError>) {
        for waiting in std::mem::take(&mut self.sleeping.waiting) {
            match (waiting, &took_ms) {
                (Waiting::Awake(reply), _) => drop(reply.send(took_ms.clone())),
                // Queued behind what is in the mailbox by now; their order does not matter.
                (Waiting::Message(message), Ok(_)) => drop(self.me.address.send(*message)),
                (waiting, Err(error)) => waiting.refuse(error.clone()),
            }
        }
    }

    /// Whether a message needs the guest, and comes from a session that may use it.
    fn wants_guest(&self, message: &Msg) -> bool {
        match message {
            Msg::Tool(ToolCall { tool, cx, .. }) => {
                tools::wants_guest(tool.name) && self.authorize_session(cx.session).is_ok()
            }
            Msg::Enter(cx, _) => self.authorize_session(cx.session).is_ok(),
            Msg::Exec(request) => self.authorize_session(request.session).is_ok(),
            Msg::Tasks(TaskMsg::Access { .. }) => true,
            _ => false,
        }
    }
}
