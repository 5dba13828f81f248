//! Call context: identity, deadline, cancellation and progress of one tool call.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    CallId, Receipt, SessionId, ToolError, TraceContext, User,
    ports::{ClientPrompt, Reservation},
    view::ToolView,
};

/// How a client reached the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// MCP over stdio, carried by the Unix socket.
    McpStdio,
    /// MCP over streamable HTTP.
    McpHttp,
    /// The HTTP API.
    HttpApi,
    /// What E2B's SDKs speak.
    E2b,
    /// The command line.
    Cli,
    /// The daemon itself.
    Internal,
}

/// Identity, deadline and cancellation of one call. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallCx {
    /// Id of the call.
    pub id: CallId,
    /// Session of the caller.
    pub session: SessionId,
    /// User who calls, where the door knows it: an operator may call in another's session. Without one it
    /// is the session's user.
    pub caller: Option<User>,
    /// Canonical name of the tool.
    pub tool: &'static str,
    /// Door that the call came through.
    pub door: Door,
    /// Tools that the caller may call.
    pub view: Arc<ToolView>,
    /// End of the call: later than this the caller has been answered and nobody waits.
    pub deadline: Instant,
    /// Fires when the caller cancels or goes away, and at the deadline.
    pub cancel: CancellationToken,
    /// Outlet for progress.
    pub progress: Progress,
    /// Delivery receipt: tells an actor that has to know whether the answer reached the caller.
    pub receipt: Receipt,
    /// Admission permit of the call among those that its actor works on.
    pub slot: AdmissionPermit,
    /// Quota reserved beforehand for what the call makes; only on the daemon's own calls.
    pub reserved: Option<Reservation>,
    /// Trace that the client says the call belongs to; its commands get it as variables.
    pub trace: Option<TraceContext>,
    /// Person at the caller's own client, if it can ask one.
    pub client: Option<Arc<dyn ClientPrompt>>,
    /// Tracing span of the call; work done for the call enters it.
    pub span: tracing::Span,
}

impl CallCx {
    /// Context of work that goes on without a call, on a session's behalf.
    pub fn internal(
        session: SessionId,
        limit: std::time::Duration,
        cancel: CancellationToken,
        span: tracing::Span,
    ) -> Self {
        Self {
            id: CallId::new(),
            session,
            caller: None,
            tool: "internal",
            door: Door::Internal,
            view: Arc::default(),
            deadline: Instant::now() + limit,
            cancel,
            progress: Progress::default(),
            receipt: Receipt::default(),
            slot: AdmissionPermit::default(),
            reserved: None,
            trace: None,
            client: None,
            span,
        }
    }

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

/// Admission permit: a call's place among those that its target works on at a time. The permit
/// lasts until the work has ended; work that only waits can give it back, so that it keeps no other
/// call out. `registry.admission.parked` limits how many calls of a session may wait that way; one
/// more keeps its place.
#[derive(Clone, Default)]
pub struct AdmissionPermit(Option<Arc<dyn Fn() + Send + Sync>>);

impl AdmissionPermit {
    /// Makes a permit that `give_back` returns.
    pub fn new(give_back: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(give_back)))
    }

    /// Returns the permit; has no effect a second time or after the work has ended.
    pub fn give_back(&self) {
        if let Some(give_back) = &self.0 {
            give_back();
        }
    }
}

impl std::fmt::Debug for AdmissionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdmissionPermit")
    }
}

/// Progress of a call at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    /// Amount of work done so far; never decreases within a call.
    pub done: f64,
    /// Total amount of work in the same unit, if known.
    pub total: Option<f64>,
    /// Description of the current step, for people.
    pub message: String,
}

/// Bounded, lossy outlet for progress: a client that does not read loses updates and never slows
/// the work.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<mpsc::Sender<ProgressUpdate>>>);

impl Progress {
    /// Makes an outlet and its reading end, which holds at most `capacity` updates.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<ProgressUpdate>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self(Some(Arc::new(sender))), receiver)
    }

    /// True while somebody listens.
    pub fn wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Reports progress; the update is lost when the outlet is full.
    pub fn report(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        if let Some(sender) = &self.0 {
            let _lost_when_full =
                sender.try_send(ProgressUpdate { done, total, message: message.into() });
        }
    }
}
