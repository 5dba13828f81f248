//! The context that travels with one tool call.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{CallId, Receipt, SessionId, ToolError, ports::Reservation};

/// How a client reached the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// MCP over stdio, carried by the Unix socket.
    McpStdio,
    /// MCP over streamable HTTP.
    McpHttp,
    /// The command line.
    Cli,
    /// The daemon itself.
    Internal,
}

/// Who calls, until when, and how to stop it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallCx {
    /// This call.
    pub id: CallId,
    /// The caller's session.
    pub session: SessionId,
    /// The tool, by its canonical name.
    pub tool: &'static str,
    /// The door it came through.
    pub door: Door,
    /// After this the caller has been answered and nobody waits.
    pub deadline: Instant,
    /// Fires when the caller cancels or goes away, and at the deadline.
    pub cancel: CancellationToken,
    /// Where progress goes.
    pub progress: Progress,
    /// Whether the answer reached the caller, for an actor that has to know.
    pub receipt: Receipt,
    /// Its place among the calls that its actor works on.
    pub slot: AdmissionPermit,
    /// What was reserved beforehand for what the call makes; only of calls of the daemon's own.
    pub reserved: Option<Reservation>,
    /// The call's span; work done for the call enters it.
    pub span: tracing::Span,
}

impl CallCx {
    /// Time left before the deadline.
    pub fn remaining(&self) -> std::time::Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Waits for work, or for the caller to lose interest, whichever is first.
    ///
    /// # Errors
    /// `cancelled` or `deadline_exceeded`; the work is dropped.
    pub async fn guard<T>(
        &self,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ToolError::cancelled()),
            () = tokio::time::sleep_until(self.deadline) =>
                Err(ToolError::deadline(crate::Layer::Actor, 0)),
            result = work => result,
        }
    }
}

/// A call's place among those that its target works on at a time. It is held until the work has
/// ended; work that is nothing but waiting can give it back, so that it keeps no other call out.
/// A session may have so many calls that wait that way (`registry.admission.parked`); one more keeps
/// its place.
#[derive(Clone, Default)]
pub struct AdmissionPermit(Option<Arc<dyn Fn() + Send + Sync>>);

impl AdmissionPermit {
    /// A place that is given back like this.
    pub fn new(give_back: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(give_back)))
    }

    /// Gives it back; a second time, or when the work has ended, nothing happens.
    pub fn give_back(&self) {
        if let Some(give_back) = &self.0 {
            give_back();
        }
    }
}

impl std::fmt::Debug for AdmissionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

/// One step forward of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    /// Work done so far; never decreases within a call.
    pub done: f64,
    /// All the work, if known, in the same unit.
    pub total: Option<f64>,
    /// What is happening.
    pub message: String,
}

/// A bounded, lossy outlet for progress: a client that does not read loses
/// updates and never slows the work.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<mpsc::Sender<ProgressUpdate>>>);

impl Progress {
    /// An outlet and its reading end, which holds at most `capacity` updates.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<ProgressUpdate>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self(Some(Arc::new(sender))), receiver)
    }

    /// Whether anybody listens.
    pub fn wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Tells how far the work is.
    pub fn report(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        if let Some(sender) = &self.0 {
            let _lost_when_full =
                sender.try_send(ProgressUpdate { done, total, message: message.into() });
        }
    }
}
