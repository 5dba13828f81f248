//! Request of a front door, and its outcome.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallId, Door, Progress, ReceiptPad, SessionId, ToolError, TraceContext, ports::WaitingSummary,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::ApprovalRoute;
use crate::ToolView;

/// Request for a call, as a front door understood it.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The caller's session.
    pub session: SessionId,
    /// The door it came through.
    pub door: Door,
    /// The tool, by any name it answers to.
    pub tool: String,
    /// The input, as it came.
    pub args: Map<String, Value>,
    /// Sink of the call's progress.
    pub progress: Progress,
    /// Fired by the door when the caller cancels.
    pub cancel: CancellationToken,
    /// The caller's own time limit, in place of the tool's.
    pub timeout: Option<Duration>,
    /// The caller's view; no other tool can be called.
    pub view: Arc<ToolView>,
    /// Trace that the caller says the call belongs to.
    pub trace: Option<TraceContext>,
    /// Way to an approval, should the call need one.
    pub approval: ApprovalRoute,
}

/// Outcome of a call.
#[derive(Debug)]
pub struct CallOutcome {
    /// The call, as events and logs name it.
    pub call: CallId,
    /// The tool's output, or who refused it or failed, and why.
    pub result: Result<Value, ToolError>,
    /// True where a success is what the tool of another MCP server answered, whole: content and all.
    pub from_source: bool,
    /// Time from the door and back.
    pub duration: Duration,
    /// Notes for a person, beside the result.
    pub notices: Vec<String>,
    /// Messages that wait for the caller's session, beside what this answer brings.
    pub waiting: Option<WaitingSummary>,
    /// Receipt for the door to sign when the answer is written; none with an error.
    pub receipt: Option<ReceiptPad>,
}
