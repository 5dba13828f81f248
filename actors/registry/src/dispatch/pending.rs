//! A call that is on its way, and what happens when its caller stops waiting.

use hivekeep_kernel::{Address, CallId, ToolError};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{registry::Msg, sessions::InFlight, stats::Running};

type Answer = oneshot::Receiver<Result<Value, ToolError>>;

/// Holds the call's slot, its place among the session's calls in flight, and its
/// count among the tool's, until its work has ended. When it is dropped before
/// that (cancelled, too late, client gone) the work is told to stop, and what
/// is held is held by a small task until it has.
pub(super) struct Pending {
    /// Taken when there is nothing more to wait for.
    held: Option<Held>,
    cancel: CancellationToken,
}

struct Held {
    call: CallId,
    answer: Answer,
    registry: Address<Msg>,
    _live: Option<InFlight>,
    running: Running,
    since: tokio::time::Instant,
}

impl Held {
    fn release(self, failed: bool) {
        self.running.ended(self.since.elapsed(), failed);
        // A registry that is being restarted has no slot of this call.
        let _ = self.registry.send(Msg::Ended(self.call));
    }
}

impl Pending {
    pub(super) fn new(
        call: CallId,
        answer: Answer,
        registry: Address<Msg>,
        cancel: CancellationToken,
        live: Option<InFlight>,
        running: Running,
    ) -> Self {
        let since = tokio::time::Instant::now();
        let held = Held { call, answer, registry, _live: live, running, since };
        Self { held: Some(held), cancel }
    }

    /// Waits for the answer; `None` when there will be none. Cancel-safe; not to
    /// be called again after it has answered.
    pub(super) async fn answer(&mut self) -> Option<Result<Value, ToolError>> {
        let answer = match &mut self.held {
            Some(held) => (&mut held.answer).await.ok(),
            None => None,
        };
        if let Some(held) = self.held.take() {
            held.release(!matches!(answer, Some(Ok(_))));
        }
        answer
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        self.cancel.cancel();
        // Out of the queue, if it is still there; its reply is dropped then.
        let _ = held.registry.send(Msg::Left(held.call));
        let wait = async move {
            let answer = (&mut held.answer).await;
            held.release(!matches!(answer, Ok(Ok(_))));
        };
        // Outside a runtime everything has ended already.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let _detached = runtime.spawn(wait);
        }
    }
}
