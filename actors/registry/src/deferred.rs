//! Long-running operations (asynchronous request and reply): calls that outlive their client, and
//! whose result is asked for later. MCP calls them tasks.
//!
//! ```text
//! begun, durable ─▶ held ─┬─ ends soon ─▶ answered like any call, and forgotten
//!                         └─▶ handed out ─┬─ ends ──────────────▶ its end is durable, kept, expires
//!                                         └─ the daemon goes ───▶ lost, told by the next daemon
//! ```
//! A call that may take long is in a stream of its own, `deferred/<id>`, before it is made. Its
//! client waits for it a little; then it gets a handle, and the call goes on whoever leaves. A call
//! for which a session or its user has no room is an ordinary one. It is read and cancelled by the
//! session that made it and by no other, in the same words as if it were not there.

mod held;
mod restore;
mod run;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ApprovalId, DeferredId, Layer, SessionId, ToolError, lock};
use hivekeep_ports::{UserQuestion, UserReply};
use hivekeep_runtime::log;
use hivekeep_store::{Journal, StreamId};
use tokio_util::sync::CancellationToken;

use crate::{CallOutcome, CallRequest, DeferredOptions, Dispatcher, SessionsHandle, codes};
use held::{DeferredEnd, DeferredRecord, HeldCall, Recorded};

/// Answer to a client's call.
#[derive(Debug)]
pub enum DeferredOutcome {
    /// The result.
    Answered(CallOutcome),
    /// A handle: the call goes on.
    HandedOut(DeferredView),
}

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

/// The deferred calls. Cheap to clone.
#[derive(Clone)]
pub struct DeferredCalls(Arc<Inner>);

struct Inner {
    options: DeferredOptions,
    journal: Journal,
    sessions: SessionsHandle,
    /// Fires when the daemon begins to stop: how a call ends after it is not its own doing.
    closing: CancellationToken,
    calls: Mutex<HashMap<DeferredId, Arc<HeldCall>>>,
}

impl std::fmt::Debug for DeferredCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeferredCalls").field("calls", &lock(&self.0.calls).len()).finish()
    }
}

impl DeferredCalls {
    /// Makes a call. One that may take long, and still runs after the time of
    /// `registry.deferred.after_ms`, is handed out; until then, dropping the future cancels it.
    pub async fn call(&self, dispatcher: &Dispatcher, mut request: CallRequest) -> DeferredOutcome {
        let Some((call, log)) = self.begin(dispatcher, &mut request).await else {
            return DeferredOutcome::Answered(dispatcher.call(request).await);
        };
        hivekeep_kernel::fault_point!("deferred.begun");
        self.hold(dispatcher, call, log, request).await
    }

    /// A call of this session.
    ///
    /// # Errors
    /// `deferred_call_unknown`, also for another session's; `journal_failed`.
    pub async fn get(&self, session: SessionId, id: DeferredId) -> Result<DeferredView, ToolError> {
        let call = self.find(session, id)?;
        if !call.is_over() {
            return Ok(running(&self.0.options, id, &call));
        }
        let loaded = log::read::<Recorded>(&self.0.journal, &stream(id)).await;
        // The call may have expired while its records were read.
        self.find(session, id)?;
        let end = loaded?.and_then(|loaded| loaded.state.end).ok_or_else(|| unknown(id))?;
        Ok(over(&self.0.options, id, &call, end))
    }

    /// Tells a call of this session to end. One that has ended stays as it is.
    ///
    /// # Errors
    /// `deferred_call_unknown`, also for another session's.
    pub fn cancel(&self, session: SessionId, id: DeferredId) -> Result<(), ToolError> {
        self.find(session, id)?.stop();
        Ok(())
    }

    /// Passes a person's reply on to the question that a call of this session waits for; `None` is
    /// a person who did not reply. What the call does not wait for (any more) is passed over.
    ///
    /// # Errors
    /// `deferred_call_unknown`, also for another session's.
    pub fn reply(
        &self,
        session: SessionId,
        id: DeferredId,
        question: ApprovalId,
        reply: Option<UserReply>,
    ) -> Result<(), ToolError> {
        self.find(session, id)?.reply(question, reply);
        Ok(())
    }

    fn find(&self, session: SessionId, id: DeferredId) -> Result<Arc<HeldCall>, ToolError> {
        let found = lock(&self.0.calls).get(&id).cloned();
        let now = Utc::now();
        let own = |call: &Arc<HeldCall>| call.session == session;
        let there = |call: &Arc<HeldCall>| call.is_known() && !call.expired(&self.0.options, now);
        found.filter(own).filter(there).ok_or_else(|| unknown(id))
    }
}

fn stream(id: DeferredId) -> StreamId {
    log::stream::<Recorded>(id).expect("an id has only letters, digits and `_`")
}

fn unknown(id: DeferredId) -> ToolError {
    let id = id.to_string();
    ToolError::not_found(Layer::Session, codes::DEFERRED_CALL_UNKNOWN, "deferred call", &id)
        .next("make the call again if its result is still wanted")
}

fn running(options: &DeferredOptions, id: DeferredId, call: &HeldCall) -> DeferredView {
    let questions = call.questions();
    let status = match questions.is_empty() {
        true => DeferredStatus::Running,
        false => DeferredStatus::Asks(questions),
    };
    view(options, id, call, status)
}

fn over(
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

#[cfg(test)]
mod tests;
