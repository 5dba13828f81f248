//! Child sessions port: work that runs by itself, as an agent does, calls tools in a session of its own
//! below the session that began it.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Effect, EffectKey, Progress, SessionId, ToolError, User};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Sessions that are opened for work of another session, as the run of an agent is.
///
/// A child outlives its parent and the daemon, and neither ends by itself nor makes room for another
/// session: whoever opened it ends it. It is told apart from people by its door, `agent`. Until the daemon
/// has started, everything but an end is refused as retryable.
#[async_trait]
pub trait ChildSessions: Send + Sync {
    /// Opens a session below another, or gives the one that this name has below it already, also when
    /// the parent is over by then. The child is of the parent's user and never above the parent: of the
    /// tools that are asked for it has those that the parent may call by its own profile.
    ///
    /// # Errors
    /// `session_unknown` or `session_ended` of the parent, `child_too_deep`, `too_many_sessions`,
    /// `invalid_input` for a context that is not configured, `denied` for a context or an agent that would
    /// let the child do what the parent may not, `journal_failed`.
    async fn open(&self, child: ChildSession) -> Result<SessionId, ToolError>;

    /// Opens a session of a user that nobody is at, or gives the one of this name: one that is above others, with
    /// the user's rights at the door of agents. It does not end by itself.
    ///
    /// # Errors
    /// `too_many_sessions`, `journal_failed`; `actor_unavailable`, retryable, until all families are mounted.
    async fn open_for(&self, user: User, name: &str) -> Result<SessionId, ToolError>;

    /// Tools that a child may call now, in the catalogue's order, as a listing for a model has them.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`.
    fn tools(&self, child: SessionId) -> Result<Vec<ChildTool>, ToolError>;

    /// Calls a tool as a client of the child would: through every step of the dispatcher, with its policy
    /// and its records. One that needs an approval waits for a person. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Those of the dispatcher and of the tool.
    async fn call(&self, call: ChildCall) -> Result<ChildAnswer, ToolError>;

    /// Sessions of agents among this one and those above it, the nearest first; none for a person's. One that
    /// is over and kept still is among them.
    fn agents_above(&self, session: SessionId) -> Vec<SessionId>;

    /// Sessions with a call that waits for a person's approval.
    fn awaiting_approval(&self) -> BTreeSet<SessionId>;

    /// Ends a child: its calls are cancelled, and what it owned is orphaned. A session that has ended or
    /// is not there is no error.
    ///
    /// # Errors
    /// `journal_failed`.
    async fn end(&self, child: SessionId) -> Result<(), ToolError>;
}

/// Name for all tools that the parent may call, as they are when the child is opened. One that a person approves for the
/// parent, and nobody would for the child, is left out.
pub const ALL_TOOLS: &str = "*";

/// Request for a child session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSession {
    /// Session that it is opened below.
    pub parent: SessionId,
    /// Name below the parent, such as the id of a run.
    pub name: String,
    /// Agent that it works for; the parent's without one.
    pub agent: Option<String>,
    /// Security context, a name of `policy.contexts`; the parent's without one.
    pub context: Option<String>,
    /// Names of the tools that it shall have, dotted or underscored, or [`ALL_TOOLS`]. Unknown ones are left out.
    pub tools: BTreeSet<String>,
}

/// Tool of a child session.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildTool {
    /// Name of letters, digits and `_`, as models and [`ChildSessions::call`] take it.
    pub name: String,
    /// Name that the tool is declared by, which may have dots.
    pub declared: &'static str,
    /// Text for models.
    pub description: String,
    /// JSON Schema of the input, an object at the root.
    pub input_schema: Value,
    /// Effect on the world: a call of a tool that reads or is idempotent can be made again.
    pub effect: Effect,
    /// Whether calls of it can be made side by side.
    pub concurrency_safe: bool,
}

/// Call of a tool by a child session.
#[derive(Debug, Clone)]
pub struct ChildCall {
    /// The child.
    pub session: SessionId,
    /// The tool, by any of its names.
    pub tool: String,
    /// Input, unchecked.
    pub args: Map<String, Value>,
    /// Time limit once the call is let through, in place of the tool's own.
    pub timeout: Option<Duration>,
    /// Cancellation of the call.
    pub cancel: CancellationToken,
    /// Outlet for progress.
    pub progress: Progress,
    /// Key under which the call has its effect once. With `again`, a tool that keeps no results under keys is not
    /// called: that is `effect_unknown`.
    pub effect: Option<EffectKey>,
}

/// Success of a [`ChildCall`].
#[derive(Debug, Clone, PartialEq)]
pub struct ChildAnswer {
    /// The tool's output.
    pub value: Value,
    /// True where `value` is what the tool of another MCP server answered, whole: content and all.
    pub from_source: bool,
}
