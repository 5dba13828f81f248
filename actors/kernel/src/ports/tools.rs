//! Internal calls: the daemon calls its own tools on behalf of a session.
//!
//! An actor makes things for a session the way that session would: through the same catalogue,
//! schema and admission, with that session's quota and ownership. Such an actor depends on no other
//! actor's crate.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Reservation;
use crate::{Layer, Progress, SessionId, ToolError, ToolSpec, codes, view::ToolView};

/// Context of an internal call: session, deadline, cancellation, progress.
#[derive(Debug, Clone)]
pub struct InternalCall {
    /// Session on whose behalf the call is made. It may have ended: its leftovers can still be
    /// removed.
    pub session: SessionId,
    /// End of the call: nobody waits after this.
    pub deadline: Instant,
    /// Cancellation of the work.
    pub cancel: CancellationToken,
    /// Outlet for progress.
    pub progress: Progress,
    /// Quota reserved for this call and others; used first for what the call makes.
    pub reserved: Option<Reservation>,
}

/// All tools of the daemon, by name.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Calls a tool. Returns when the work has really ended, also after a cancellation, so that
    /// cleaning up afterwards races with nothing; only the deadline cuts that short. Takes no
    /// tokens of the session's rates.
    ///
    /// # Errors
    /// Errors of the tool itself and of the layers before it; `deadline_exceeded` when the work may
    /// still be running.
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError>;

    /// True unless a policy denies the tool to a session whatever the input. Without policies, always.
    fn may_call(&self, session: SessionId, view: &ToolView, tool: &'static ToolSpec) -> bool {
        let (_, _, _) = (session, view, tool);
        true
    }
}

/// Late-bound tools: wired up once the dispatcher exists; until then each call is refused as
/// retryable. Cheap to clone.
#[derive(Clone, Default)]
pub struct LateTools(Arc<OnceLock<Arc<dyn Tools>>>);

impl LateTools {
    /// Wires the tools up. A second call has no effect.
    pub fn wire(&self, tools: Arc<dyn Tools>) {
        let _the_first_stays = self.0.set(tools);
    }
}

#[async_trait]
impl Tools for LateTools {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        match self.0.get() {
            Some(tools) => tools.call(call, tool, args).await,
            None => Err(ToolError::new(
                Layer::Actor,
                codes::ACTOR_UNAVAILABLE,
                "the daemon is still starting",
            )
            .retry_after(std::time::Duration::from_millis(200))),
        }
    }

    fn may_call(&self, session: SessionId, view: &ToolView, tool: &'static ToolSpec) -> bool {
        self.0.get().is_none_or(|tools| tools.may_call(session, view, tool))
    }
}
