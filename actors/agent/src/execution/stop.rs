//! Stop of what a chat is at: the answer is given up, and the chat waits for its next message.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Layer, ToolError};

use super::{ExecutionSaga, state::ExecutionState};
use crate::codes;

impl ExecutionState {
    /// True for a chat that answers a message, or is about to.
    pub(crate) fn answers(&self) -> bool {
        self.begun.plan.chat.is_some() && self.end.is_none() && !self.awaits_message()
    }

    /// Gives up the answer of a chat. Messages without one stand in the conversation, and are answered with the next.
    pub(super) fn stop(&mut self, at: DateTime<Utc>) {
        if self.iterations.is_empty() && self.begun.plan.intent.is_some() {
            // The task is the first message: it has an iteration, without a turn.
            let prompt = self.begun.plan.prompt(1, None).unwrap_or_default();
            self.begin_iteration(0, &prompt, at);
        }
        if !self.is_between_messages()
            && let Some((_, now)) = self.current()
        {
            let error = ToolError::new(Layer::Actor, codes::TURN_STOPPED, "it was stopped");
            now.error = Some(Arc::new(error.next("say what it is to do instead")));
        }
        Arc::make_mut(&mut self.account).stopped(at);
    }
}

impl ExecutionSaga {
    /// Returns once the iteration has failed without the caller, because somebody stopped it.
    pub(super) async fn stopped(&self, iteration: usize) {
        let mut news = self.handle.watch();
        let over = |state: &ExecutionState| {
            state.iterations.get(iteration).is_some_and(|it| it.error.is_some())
        };
        // The handle keeps it open.
        let _over = news.wait_for(|view| over(&view.state)).await.map(drop);
    }
}
