//! Tool ports: the daemon calls its own tools on behalf of a session, searches them, takes those of sources
//! outside of it, as MCP servers are, and keeps results that are too large for their answers.
//!
//! An actor makes things for a session the way that session would: through the same catalogue,
//! schema and admission, with that session's quota and ownership. Such an actor depends on no other
//! actor's crate.

use std::{
    fmt::{self, Debug, Display},
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use hivekeep_kernel::Reservation;
use hivekeep_kernel::{CallId, Progress, SessionId, ToolError, ToolSpec, User, tool::ToolView};

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

    /// True if a session may make this very call, without an approval. Without policies, always.
    fn allows(&self, session: SessionId, view: &ToolView, tool: &str, args: &Value) -> bool {
        let (_, _, _, _) = (session, view, tool, args);
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
            None => Err(ToolError::daemon_starting()),
        }
    }

    fn may_call(&self, session: SessionId, view: &ToolView, tool: &'static ToolSpec) -> bool {
        self.0.get().is_none_or(|tools| tools.may_call(session, view, tool))
    }

    fn allows(&self, session: SessionId, view: &ToolView, tool: &str, args: &Value) -> bool {
        self.0.get().is_none_or(|tools| tools.allows(session, view, tool, args))
    }
}

/// Index of the tools, for whoever lists them.
pub trait ToolSearch: Send + Sync {
    /// Declared names of the tools that a query finds, the best first. All of them for a blank query,
    /// in the order of the catalogue. What a caller may know of is for the caller's door to say.
    fn search(&self, query: &str) -> Vec<&'static str>;
}

/// Origin of tools that are not the daemon's own.
pub trait ForeignSource: Debug + Send + Sync {
    /// Name of the server, as the operator configured it.
    fn server(&self) -> &str;
    /// State, as it is now.
    fn state(&self) -> SourceState;
}

/// Readiness of a source for calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// Connected: calls are passed on.
    Ready,
    /// Being connected for the first time, or again.
    Connecting,
    /// Not there, for this reason.
    Unreachable(String),
    /// The source wants a credential, and none is configured.
    AuthRequired,
    /// The source takes the configured credential for an expired one.
    AuthExpired,
    /// The source does not accept the configured credential.
    AuthInvalid,
}

impl SourceState {
    /// The state as one word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Connecting => "connecting",
            Self::Unreachable(_) => "unreachable",
            Self::AuthRequired => "auth_required",
            Self::AuthExpired => "auth_expired",
            Self::AuthInvalid => "auth_invalid",
        }
    }

    /// Why the source is not ready, for people.
    pub fn why(&self) -> Option<String> {
        (*self != Self::Ready).then(|| self.to_string())
    }
}

impl Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "it is ready",
            Self::Connecting => "it is being connected",
            Self::Unreachable(why) => why,
            Self::AuthRequired => "it wants a credential, and none is configured",
            Self::AuthExpired => "it takes the configured credential for one that is over",
            Self::AuthInvalid => "it does not take the configured credential",
        })
    }
}

/// Tool of a source.
#[derive(Debug, Clone)]
pub struct SourceTool {
    /// Declaration. Its result is what the source answers, whole.
    pub spec: &'static ToolSpec,
    /// Name that the source has for it.
    pub raw_name: String,
    /// Text for models, as the source has it.
    pub description: String,
    /// JSON Schema 2020-12 of the input, an object at the root.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of the structured part of a result.
    pub output_schema: Option<Value>,
    /// Another tool of the source that would have the same name; then neither is called.
    pub conflict: Option<String>,
}

/// Catalogue that takes the tools of sources.
pub trait ToolPublisher: Send + Sync {
    /// Replaces what a source published before, for listings and for calls that begin from now on.
    /// `source` is the same value each time.
    fn publish(&self, source: Arc<dyn ForeignSource>, tools: Vec<SourceTool>);
}

/// Result that is larger than its tool may answer.
#[derive(Debug, Clone)]
pub struct LargeResult {
    /// Owner: nobody else but the operator can read it.
    pub user: User,
    /// Session of the call.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// Canonical name of the tool.
    pub tool: &'static str,
    /// The whole result.
    pub value: Value,
}

/// Where a result is kept, as it is told to its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptResult {
    /// URI, such as `hivekeep://artifacts/art_...`.
    pub uri: String,
    /// Size in bytes.
    pub bytes: u64,
    /// MIME type: the form in which it is kept.
    pub mime_type: &'static str,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// Time at which it is removed.
    pub expires_at: DateTime<Utc>,
}

/// Store of results that are too large for their answers.
#[async_trait]
pub trait ResultKeeper: Send + Sync {
    /// Name of the tool that reads what is kept, in ranges.
    fn reader(&self) -> &'static str;

    /// Keeps a result. It is on the disk when this returns, and can be read until it expires. Work
    /// that has begun goes on when the future is dropped.
    ///
    /// # Errors
    /// When there is no room for it, or it cannot be written; then nothing is kept.
    async fn keep(&self, result: LargeResult) -> Result<KeptResult, ToolError>;
}
