//! The daemon calling its own tools for a session.
//!
//! What an actor makes on behalf of a session is made as that session would make it: through the
//! same catalogue, schema and admission, with that session's quota and ownership. An actor that
//! works this way knows no other actor's crate.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Reservation;
use crate::{Layer, Progress, SessionId, ToolError, codes};

/// For whom, until when, and how to stop it.
#[derive(Debug, Clone)]
pub struct InternalCall {
    /// In whose name. It may have ended: what it left behind can still be removed.
    pub session: SessionId,
    /// Nobody waits after this.
    pub deadline: Instant,
    /// Tells the work to stop.
    pub cancel: CancellationToken,
    /// Where progress goes.
    pub progress: Progress,
    /// What was reserved for it and others. What it makes is drawn from that first.
    pub reserved: Option<Reservation>,
}

/// Every tool of the daemon, by name.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Calls a tool. Answers when the work has really ended, also after it was told to stop, so
    /// that whoever cleans up afterwards races with nothing; only the deadline cuts that short.
    /// Takes no tokens of the session's rates.
    ///
    /// # Errors
    /// As the tool itself and the layers before it; `deadline_exceeded` when the work may go on.
    async fn call(
        &self,
        errand: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError>;
}

/// Tools that are wired up once the dispatcher is there; until then each call is told to come
/// again. Cheap to clone.
#[derive(Clone, Default)]
pub struct LateTools(Arc<OnceLock<Arc<dyn Tools>>>);

impl LateTools {
    /// Wires them up. The first one stays.
    pub fn wire(&self, tools: Arc<dyn Tools>) {
        let _the_first_stays = self.0.set(tools);
    }
}

#[async_trait]
impl Tools for LateTools {
    async fn call(
        &self,
        errand: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        match self.0.get() {
            Some(tools) => tools.call(errand, tool, args).await,
            None => Err(ToolError::new(
                Layer::Actor,
                codes::ACTOR_UNAVAILABLE,
                "the daemon is still starting",
            )
            .retry_after(std::time::Duration::from_millis(200))),
        }
    }
}
