//! Adapter of `tools/call`: a request of the dispatcher, made for as long as its client waits, with its progress as
//! notifications to the client that asked for it.

use std::sync::Arc;

use hivekeep_door_server::{codes, result_form::content_of};
use hivekeep_kernel::{Door, Progress, ProgressUpdate, RateClass, TraceContext};
use hivekeep_ports::ClientPrompt;
use hivekeep_registry::{ApprovalRoute, CallRequest, DeferredOutcome};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, ProgressNotificationParam, ProgressToken},
    service::{Peer, RequestContext},
};
use serde_json::json;
use tokio::sync::{SemaphorePermit, mpsc};

use super::{
    HTTP_CALLS, McpHandler, Origin, answer,
    elicit::{self, RepeatedCall, RoundPrompt},
    tasks,
    wire::{self, Ticket},
};

/// Tools with more than this in an answer wait for a turn.
const LARGE_RESULT_BYTES: usize = 8 * 1024 * 1024;

impl McpHandler {
    /// Waits for a turn when the tool answers quickly and maybe largely: no more such answers are
    /// made than a client reads. What takes long is limited by its own rate instead.
    async fn turn(&self, tool: &str, context: &RequestContext<RoleServer>) {
        let spec = self.0.core.catalogue().find(tool).map(|entry| entry.spec);
        let large = spec.is_some_and(|spec| {
            let quick = matches!(spec.rate, RateClass::File | RateClass::Default);
            quick && spec.result_budget_bytes > LARGE_RESULT_BYTES
        });
        if let (true, Some(ticket)) = (large, context.extensions.get::<Ticket>()) {
            ticket.turn(&context.ct).await;
        }
    }

    /// A place among the calls of one session over HTTP, whose clients may leave while they run.
    /// Those of a connection have theirs already.
    fn place(&self) -> Result<Option<SemaphorePermit<'_>>, ErrorData> {
        match &self.0.origin {
            Origin::Connection(_) => Ok(None),
            Origin::Http { calls, .. } => match calls.try_acquire() {
                Ok(place) => Ok(Some(place)),
                Err(_) => Err(wire::refused(&wire::too_many(HTTP_CALLS))),
            },
        }
    }

    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session(&context).await?;
        let _place = self.place()?;
        self.turn(&request.name, &context).await;
        let core = &self.0.core;
        let repeated = match elicit::in_rounds(&context) {
            true => match elicit::repeated(core, session, &request).await {
                Ok(repeated) => Some(repeated),
                Err(error) if error.is(codes::APPROVAL_NOT_FOUND) => {
                    // A state that is forged, or another session's.
                    let data = Some(json!({ "error": error }));
                    return Err(ErrorData::invalid_params(error.to_text(), data));
                }
                Err(error) => return Ok(CallToolResponse::Complete(answer::refused(&error))),
            },
            false => None,
        };
        // A person who closed the form is not shown it again; the other ways to people stay open.
        let asks = repeated.is_some_and(|repeated| repeated != RepeatedCall::FormClosed);
        let (prompt, round) =
            (elicit::PeerPrompt::of(&context), Arc::new(RoundPrompt::of(&request)));
        let client = match asks {
            true => Some(round.clone() as Arc<dyn ClientPrompt>),
            false => prompt.map(|it| Arc::new(it) as Arc<dyn ClientPrompt>),
        };
        let waits = !(asks && core.config.policy.approvals.elicitation);
        let (relay, content) = (Relay::of(&context), content_of(core, &request.name));
        let call = CallRequest {
            session,
            door: self.0.door,
            tool: request.name.into_owned(),
            args: request.arguments.unwrap_or_default(),
            progress: relay.as_ref().map_or_else(Progress::default, Relay::outlet),
            cancel: context.ct.clone(),
            timeout: None,
            view: self.0.view.clone(),
            trace: trace(&context),
            effect: None,
            approval: ApprovalRoute { waits, client, ..ApprovalRoute::default() },
        };
        let call = self.made(call, tasks::taken_by(&context));
        let outcome = match relay {
            Some(relay) => relay.while_running(call).await,
            None => call.await,
        };
        let mut outcome = match outcome {
            DeferredOutcome::HandedOut(view) => {
                return Ok(CallToolResponse::Task(tasks::created(&view)));
            }
            DeferredOutcome::Answered(outcome) => outcome,
        };
        if let Some(receipt) = outcome.receipt.take() {
            match self.0.door {
                Door::McpStdio => self.0.receipts.keep(&context.id, receipt),
                // HTTP's streams are rmcp's own, which keeps what was not read for a client that
                // comes back.
                _ if context.ct.is_cancelled() => drop(receipt),
                _ => receipt.sign(),
            }
        }
        if asks && let Some(form) = elicit::required(core, &outcome, &round).await {
            return Ok(CallToolResponse::InputRequired(form));
        }
        answer::of(outcome, context.protocol_version(), content).map(CallToolResponse::Complete)
    }

    async fn made(&self, call: CallRequest, takes_tasks: bool) -> DeferredOutcome {
        let core = &self.0.core;
        match takes_tasks {
            true => core.deferred.call(&core.dispatcher, call).await,
            false => DeferredOutcome::Answered(core.dispatcher.call(call).await),
        }
    }
}

/// Trace context in the `_meta` of a request, where it is valid.
pub(super) fn trace(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    TraceContext::parse(context.meta.get_traceparent()?, context.meta.get_tracestate())
}

/// Updates that wait for the client; more are lost.
const UPDATES_WAITING: usize = 32;

/// The way of one call's progress.
pub(super) struct Relay {
    outlet: Progress,
    updates: mpsc::Receiver<ProgressUpdate>,
    token: ProgressToken,
    peer: Peer<RoleServer>,
    last: f64,
}

impl Relay {
    /// The relay of a request that asks for progress.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        let (outlet, updates) = Progress::channel(UPDATES_WAITING);
        Some(Self { outlet, updates, token, peer: context.peer.clone(), last: f64::NEG_INFINITY })
    }

    /// The sink of the call's progress.
    pub(super) fn outlet(&self) -> Progress {
        self.outlet.clone()
    }

    /// Drives the call and tells the client how far it is; all of it before the
    /// answer.
    async fn while_running<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut call => break outcome,
                Some(update) = self.updates.recv() => self.tell(update).await,
            }
        };
        while let Ok(update) = self.updates.try_recv() {
            self.tell(update).await;
        }
        outcome
    }

    async fn tell(&mut self, update: ProgressUpdate) {
        // The protocol wants each value above the one before.
        if update.done <= self.last {
            return;
        }
        self.last = update.done;
        let mut told = ProgressNotificationParam::new(self.token.clone(), update.done);
        told.total = update.total;
        if !update.message.is_empty() {
            told.message = Some(update.message);
        }
        // A client that is gone hears nothing; its call is cancelled elsewhere.
        let _gone = self.peer.notify_progress(told).await;
    }
}
