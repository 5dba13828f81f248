//! Dispatcher: the one path of a call, in one order, for every door.
//!
//! | step | file | refuses with |
//! |---|---|---|
//! | authenticate | `sessions/handle.rs` | `session_unknown`, `session_ended` |
//! | record | `audit.rs` | `audit_unavailable` |
//! | measure | `schema.rs` | `invalid_input` |
//! | resolve | `catalogue.rs` | `unknown_tool` |
//! | respell | `catalogue/spelling.rs` | - |
//! | decide | `decide.rs` | `denied` |
//! | validate | `schema.rs` | `invalid_input` |
//! | approve | `approve.rs` | `approval_required`, `approval_denied`, `approval_timed_out` |
//! | rate | `rate.rs` | `rate_limited`, `rate_impossible` |
//! | tier | `tiers/meter.rs` | `tier_limit_reached` |
//! | quota | by the actor, through [`hivekeep_ports::SessionQuotas`] | `quota_exceeded`, `host_full` |
//! | admit, deliver, wait | `route.rs`, the registry actor | `busy`, `actor_unavailable`, `deadline_exceeded`, `cancelled`, `session_ended` |
//! | limit, of a success | `limit.rs` | `result_too_large`, with where the result is kept |
//! | redact, of an error | `redact.rs` | - |
//! | audit | `audit.rs` | - |
//!
//! A step that refuses is named in the error's `layer`; no later step is run but
//! redaction and audit. A success is never redacted: what was asked for arrives as it is. Every call leaves exactly one `call.finished` event,
//! also one whose future was dropped; but of a session whose calls are refused
//! again and again before they are routed, most are counted and told together,
//! as `calls.refused`. Nothing here waits for the journal but a call that begins a lease of its
//! user's tier, which is durable before the call is made.
//!
//! From `respell` on the input has one spelling: digests, rules, approvals and the tool see no other.
//!
//! What the daemon calls itself for a session (`internal.rs`) is respelled too, and passes from
//! `validate` on, without `rate`.

mod approve;
mod audit;
mod decide;
mod internal;
mod limit;
mod rate;
mod redact;
mod route;
mod schema;

use std::{sync::Arc, time::Duration};

use hivekeep_audit::AuditLog;
use hivekeep_kernel::{
    Address, CallId, Door, EffectKey, Progress, Receipt, ReceiptPad, SessionId, ToolError,
    TraceContext,
};
use hivekeep_policy::{Policy, PolicyEngine};
use hivekeep_ports::{ResultKeeper, WaitingMessages, WaitingSummary};
use hivekeep_store::Events;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    Options, SessionsHandle, SharedCatalogue, TargetRow, ToolEntry, ToolRow, ToolView, registry,
};
use audit::{Records, Trail};

pub use approve::{ApprovalRoute, approval_required, client_answer, client_question};
pub use decide::{DecisionRequest, DecisionView};
pub(crate) use limit::ResultOwner;
pub use redact::{RedactedPath, RedactionReason, Redactor};
pub use route::Routes;
pub(crate) use route::time_limit;

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
    /// Key under which the call has its effect once, for a caller that may die before the answer.
    pub effect: Option<EffectKey>,
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

/// Parts of a dispatcher.
pub struct DispatchParts {
    /// Limits and switches.
    pub options: Options,
    /// The tools.
    pub catalogue: Arc<SharedCatalogue>,
    /// Routes from tools to the actors that serve them.
    pub routes: Routes,
    /// The registry actor.
    pub registry: Address<registry::Msg>,
    /// The sessions that may call.
    pub sessions: SessionsHandle,
    /// Journal of events, for one of each call.
    pub events: Events,
    /// The audit log, if one is kept.
    pub audit: Option<AuditLog>,
    /// The policy engine, with the approvals.
    pub policy: PolicyEngine,
    /// Policies asked before its layers, in this order.
    pub policies: Vec<Arc<dyn Policy>>,
    /// Inboxes, for a word beside each answer; none where nobody keeps any or they are silent.
    pub waiting: Option<Arc<dyn WaitingMessages>>,
    /// Store of results that are too large; without one they are lost to their callers.
    pub results: Option<Arc<dyn ResultKeeper>>,
}

/// Takes calls from the front doors. Cheap to clone.
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

struct Inner {
    catalogue: Arc<SharedCatalogue>,
    routes: Routes,
    registry: Address<registry::Msg>,
    sessions: SessionsHandle,
    records: Records,
    policy: PolicyEngine,
    policies: Vec<Arc<dyn Policy>>,
    waiting: Option<Arc<dyn WaitingMessages>>,
    results: Option<Arc<dyn ResultKeeper>>,
    redactor: Redactor,
}

impl Dispatcher {
    /// A dispatcher over parts that may not all be running yet.
    ///
    /// # Errors
    /// When a redaction pattern is no regular expression.
    pub fn new(parts: DispatchParts) -> Result<Self, regex::Error> {
        let DispatchParts {
            options, catalogue, routes, registry, sessions, waiting, results, ..
        } = parts;
        let records = Records { events: parts.events, audit: parts.audit };
        let redactor = Redactor::new(&options.redaction)?;
        Ok(Self(Arc::new(Inner {
            catalogue,
            routes,
            registry,
            sessions,
            records,
            policy: parts.policy,
            policies: parts.policies,
            waiting,
            results,
            redactor,
        })))
    }

    /// Passes a call through. Dropping the future cancels the call.
    pub async fn call(&self, request: CallRequest) -> CallOutcome {
        let (sessions, session) = (&self.0.sessions, request.session);
        let mut trail = Trail::begin(self.0.records.clone(), &request);
        let (result, receipt) = match self.run_pipeline(request, &mut trail).await {
            Ok((value, receipt)) => (Ok(value), Some(receipt)),
            Err(error) => {
                if trail.refused() && !sessions.tells_refusal(session, &error.code) {
                    trail.hush();
                }
                (Err(self.0.redactor.error(error)), None)
            }
        };
        // Before the receipt is signed: what this answer delivers is still on its way.
        let waiting = self.waiting(session);
        CallOutcome { waiting, receipt, ..trail.finish(result) }
    }

    /// Runs the steps in their order.
    async fn run_pipeline(
        &self,
        request: CallRequest,
        trail: &mut Trail,
    ) -> Result<(Value, ReceiptPad), ToolError> {
        let inner = &*self.0;
        let CallRequest { session, door, tool, progress, cancel, timeout, view, .. } = request;
        let mut args = request.args;
        let (approval, trace, effect) = (request.approval, request.trace, request.effect);
        let mut live = inner.sessions.begin_call(session)?;
        trail.user(live.shared().account.user);
        inner.records.ready()?;
        schema::size(&args)?;
        let entry = inner.catalogue.now().resolve(&tool, &view);
        if let Ok(entry) = &entry {
            entry.respell(&mut args);
        }
        trail.input(&args);
        let entry = &*entry?;
        trail.tool(entry);
        let args = Value::Object(args);
        let profile = live.shared().profile();
        let user = live.shared().account.user;
        let caller = decide::Caller { session, user, door, view: &view, profile: &profile };
        let question = caller.question(entry, Some(&args));
        let asks = decide::authorize(inner, entry, &question, trail.verdicts())?;
        entry.check(&args)?;
        let approved = match asks {
            None => {
                trail.verdicts().push(approve::not_needed());
                None
            }
            Some(asks) => {
                let over = live.shared().over.clone();
                let (progress, cancel) = (&progress, &cancel);
                let patience =
                    approve::Patience { route: &approval, progress, cancel, over: &over };
                let verdicts = trail.verdicts();
                // Boxed: most calls need none, and every call would carry its room.
                let by =
                    approve::require_approval(inner, asks, entry, &question, patience, verdicts);
                Some(Box::pin(by).await?)
            }
        };
        let limits = inner.policy.limits(&question);
        rate::within(live.shared(), limits.max_calls)?;
        rate::take_tokens(live.shared(), entry, &args)?;
        live.take(entry.name()).await?;
        let (pad, receipt) = Receipt::pair();
        let user = live.shared().account.user;
        let (call, shown) = (trail.call(), view.clone());
        let caller = route::Caller::Client(live);
        let order = route::Order {
            entry,
            user: approval.caller,
            door,
            view,
            args,
            progress,
            cancel,
            timeout,
            caller,
            receipt,
            reserved: None,
            trace,
            effect,
            client: approval.client,
        };
        let value = match route::deliver(inner, order, trail).await {
            Ok(value) => value,
            Err(error) => {
                Box::pin(approve::asked_more(inner, approved, &error)).await;
                return Err(error);
            }
        };
        let most_bytes = limits.max_result_bytes;
        let owner =
            limit::ResultOwner { user: Some(user), session, call, view: &shown, most_bytes };
        Ok((limit::enforce(inner, entry, owner, value).await?, pad))
    }

    /// Messages that wait for a session now, for answers that are given later than they were made.
    pub fn waiting(&self, session: SessionId) -> Option<WaitingSummary> {
        self.0.waiting.as_ref().and_then(|waiting| waiting.of(session))
    }

    /// A tool's result within a budget, or the error that says where all of it is kept.
    pub(crate) async fn fit(
        &self,
        tool: &str,
        owner: ResultOwner<'_>,
        value: Value,
        budget: usize,
    ) -> Result<Value, ToolError> {
        match self.0.catalogue.now().find(tool) {
            Some(entry) => limit::within(&self.0, entry, owner, value, budget).await,
            // Its source has it no more.
            None if limit::fits(&value, budget) => Ok(value),
            None => {
                Err(ToolError::internal("the tool has gone, and its result is too large to keep"))
            }
        }
    }

    /// The catalogue behind it.
    pub fn catalogue(&self) -> &Arc<SharedCatalogue> {
        &self.0.catalogue
    }

    /// The redactor of credentials; for log previews made elsewhere.
    pub fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// Every tool's counts and times since the daemon started.
    pub fn tools(&self) -> Vec<ToolRow> {
        let catalogue = self.0.catalogue.now();
        let row = |entry: &Arc<ToolEntry>| entry.stats.row(entry.name(), entry.spec.family);
        catalogue.entries().map(row).collect()
    }

    /// Load of the targets; idle ones are not listed.
    ///
    /// # Errors
    /// When the registry actor does not answer.
    pub async fn targets(&self) -> Result<Vec<TargetRow>, ToolError> {
        let ask = |reply: oneshot::Sender<_>| registry::Msg::Targets(reply);
        Ok(self.0.registry.ask(std::time::Duration::from_secs(5), ask).await?)
    }
}

#[cfg(test)]
mod tests;
