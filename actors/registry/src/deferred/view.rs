//! Projection of a deferred call for its session.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, DeferredId, ToolError, ports::UserQuestion};

use super::{HeldCall, records::DeferredEnd};
use crate::{CallOutcome, DeferredOptions};

/// A deferred call as its session sees it.
#[derive(Debug)]
pub struct DeferredView {
    /// Id of the call.
    pub id: DeferredId,
    /// The tool.
    pub tool: String,
    /// When it began.
    pub begun_at: DateTime<Utc>,
    /// When the call changed last.
    pub changed_at: DateTime<Utc>,
    /// How long the call is kept, from its beginning. Shorter once it has ended early.
    pub lasts: Duration,
    /// Last progress message.
    pub message: Option<String>,
    /// Status of the call.
    pub status: DeferredStatus,
}

/// Status of a deferred call.
#[derive(Debug)]
pub enum DeferredStatus {
    /// The call runs.
    Running,
    /// The call runs, and waits for replies of the person at the client.
    Asks(Vec<(ApprovalId, UserQuestion)>),
    /// The call ended, with this outcome.
    Answered(CallOutcome),
    /// The session cancelled the call.
    Cancelled,
    /// The daemon ended before the call did; the error says what is known of its effect.
    Lost(ToolError),
}

pub(super) fn running(options: &DeferredOptions, id: DeferredId, call: &HeldCall) -> DeferredView {
    let questions = call.questions();
    let status = match questions.is_empty() {
        true => DeferredStatus::Running,
        false => DeferredStatus::Asks(questions),
    };
    view(options, id, call, status)
}

pub(super) fn over(
    options: &DeferredOptions,
    id: DeferredId,
    call: &HeldCall,
    end: DeferredEnd,
) -> DeferredView {
    let status = match end {
        DeferredEnd::Cancelled => DeferredStatus::Cancelled,
        DeferredEnd::Lost { error } => DeferredStatus::Lost(error),
        DeferredEnd::Answered { call, result, from_source, notices, duration_ms } => {
            let duration = Duration::from_millis(duration_ms);
            let (waiting, receipt) = (None, None);
            let outcome =
                CallOutcome { call, result, from_source, duration, notices, waiting, receipt };
            DeferredStatus::Answered(outcome)
        }
    };
    view(options, id, call, status)
}

fn view(
    options: &DeferredOptions,
    id: DeferredId,
    call: &HeldCall,
    status: DeferredStatus,
) -> DeferredView {
    let (message, changed_at) = call.last();
    let (tool, begun_at, lasts) = (call.tool.clone(), call.begun_at, call.lasts(options));
    DeferredView { id, tool, begun_at, changed_at, lasts, message, status }
}
