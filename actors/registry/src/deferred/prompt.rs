//! Decorator of the client's prompt: a question before the call is handed out is the answer to it,
//! and one after that waits beside the handle.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_kernel::{
    ApprovalId,
    ports::{ClientPrompt, UserQuestion, UserReply},
};

use super::HeldCall;

/// See the module.
#[derive(Debug)]
pub(super) struct DeferredPrompt {
    pub(super) call: Arc<HeldCall>,
    pub(super) client: Arc<dyn ClientPrompt>,
}

#[async_trait]
impl ClientPrompt for DeferredPrompt {
    async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
        match self.call.is_known() {
            true => self.call.ask(id, question).await,
            false => self.client.ask(id, question).await,
        }
    }

    fn repeats(&self) -> bool {
        self.call.answer_first()
    }

    fn used(&self, id: ApprovalId) {
        self.client.used(id);
    }
}
