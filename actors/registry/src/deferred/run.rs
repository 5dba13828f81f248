//! Course of a deferred call: it is written down, if it may take long and there is room, and made
//! beside its client; its end goes to whoever waits for it.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::Utc;
use futures::FutureExt;
use hivekeep_kernel::{
    ApprovalId, CallId, DeferredId, Progress, ProgressUpdate, RateClass, ReceiptPad, ToolError,
    fault_point, lock,
};
use hivekeep_ports::{ClientPrompt, UserQuestion, UserReply};
use hivekeep_runtime::log::{Decision, Log, LogError};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    DeferredCalls, DeferredOutcome, DeferredRecord, HeldCall, Recorded, held::DeferredEnd, running,
    stream,
};
use crate::{
    CallOutcome, CallRequest, Catalogue, Dispatcher, codes,
    dispatch::{ResultOwner, time_limit},
};

/// A call with a time limit above this may take long.
const LONG: Duration = Duration::from_secs(60);
/// Updates that wait to be passed on; more are lost.
const UPDATES: usize = 32;
/// The largest result that is kept in the journal. A larger one is an artifact.
const KEPT_BYTES: usize = 256 * 1024;

impl DeferredCalls {
    /// Writes that a call begins, if it may take long and there is room for it.
    pub(super) async fn begin(
        &self,
        dispatcher: &Dispatcher,
        request: &mut CallRequest,
    ) -> Option<(Arc<HeldCall>, Log<Recorded>)> {
        let (tool, limit) = long(&dispatcher.catalogue().now(), request)?;
        let user = self.0.sessions.owner(request.session)?;
        self.sweep();
        let (id, at, session) = (DeferredId::new(), Utc::now(), request.session);
        let call = Arc::new(HeldCall::new(id, session, user, tool, limit, at));
        let mut place = self.take_place(&call)?;
        let log = Log::of(self.0.journal.clone(), stream(id), None);
        let limit_secs = limit.as_secs();
        let record = DeferredRecord::Begun { session, user, tool: tool.to_owned(), limit_secs, at };
        let written = match log.decide::<LogError>(|_| Ok(Decision::record(record))) {
            Ok(written) => written.await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "a call is not deferred");
            return None;
        }
        place.kept = true;
        Some((call, log))
    }

    /// Enters a call, where its session and its user have room for one more.
    fn take_place(&self, call: &Arc<HeldCall>) -> Option<Place> {
        let options = &self.0.options;
        let mut calls = lock(&self.0.calls);
        let of_session = calls.values().filter(|it| it.session == call.session).count();
        let of_user = calls.values().filter(|it| it.user == call.user).count();
        let fits = of_session < options.max_per_session && of_user < options.max_per_user;
        if !fits {
            return None;
        }
        calls.insert(call.id, call.clone());
        Some(Place { calls: self.clone(), id: call.id, kept: false })
    }
}

/// Place of a call that is being written down. Given back when that fails, or its client leaves
/// meanwhile.
struct Place {
    calls: DeferredCalls,
    id: DeferredId,
    kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            lock(&self.calls.0.calls).remove(&self.id);
            self.calls.forget(self.id);
        }
    }
}

/// Name and time limit of a tool whose call may take long. Calls for files are many and quick.
fn long(catalogue: &Catalogue, request: &mut CallRequest) -> Option<(&'static str, Duration)> {
    let entry = catalogue.find(&request.tool)?;
    entry.respell(&mut request.args);
    let args = Value::Object(std::mem::take(&mut request.args));
    let limit = time_limit(entry, &args, request.timeout);
    let quick = entry.spec.class(&args) == RateClass::File || limit <= LONG;
    if let Value::Object(args) = args {
        request.args = args;
    }
    (!quick).then(|| (entry.name(), limit))
}

/// State of a deferred call's worker.
struct Work {
    calls: DeferredCalls,
    call: Arc<HeldCall>,
    log: Log<Recorded>,
    updates: mpsc::Receiver<ProgressUpdate>,
    /// The client's own progress, while it waits.
    outlet: Progress,
}

impl DeferredCalls {
    /// Begins the work, and waits for it a little.
    pub(super) async fn hold(
        &self,
        dispatcher: &Dispatcher,
        call: Arc<HeldCall>,
        log: Log<Recorded>,
        mut request: CallRequest,
    ) -> DeferredOutcome {
        let given = std::mem::replace(&mut request.cancel, call.cancel.clone());
        let (progress, updates) = Progress::channel(UPDATES);
        let outlet = std::mem::replace(&mut request.progress, progress);
        // A client that is asked while its call runs stays as it is.
        if let Some(client) = request.approval.client.take_if(|client| client.repeats()) {
            let prompt = DeferredPrompt { call: call.clone(), client };
            request.approval.client = Some(Arc::new(prompt));
        }
        let work = Work { calls: self.clone(), call: call.clone(), log, updates, outlet };
        let (answer, mut answered) = oneshot::channel();
        tokio::spawn(work.run(dispatcher.clone(), request, answer));
        // Until it is handed out, a client that is gone needs no answer.
        let gone = call.cancel.clone().drop_guard();
        let after = Duration::from_millis(self.0.options.after_ms);
        let mut grace = pin!(tokio::time::sleep(after));
        let (mut cancelled, mut over) = (false, false);
        loop {
            tokio::select! {
                biased;
                outcome = &mut answered => {
                    gone.disarm();
                    return DeferredOutcome::Answered(outcome.unwrap_or_else(|_| vanished()));
                }
                () = given.cancelled(), if !cancelled => {
                    cancelled = true;
                    call.cancel.cancel();
                }
                () = &mut grace, if !over && !cancelled => {
                    over = true;
                    if call.hand_out() {
                        gone.disarm();
                        fault_point!("deferred.handed_out");
                        return DeferredOutcome::HandedOut(running(&self.0.options, call.id, &call));
                    }
                }
            }
        }
    }
}

impl Work {
    async fn run(
        mut self,
        dispatcher: Dispatcher,
        request: CallRequest,
        answer: oneshot::Sender<CallOutcome>,
    ) {
        let (session, view) = (request.session, request.view.clone());
        // Work that panics still gives the call an end.
        let work = AssertUnwindSafe(self.while_telling(dispatcher.call(request)));
        let outcome = work.catch_unwind().await.unwrap_or_else(|_| vanished());
        if self.call.answer() {
            // A client that has gone meanwhile gets no answer, as with any call.
            let _gone = answer.send(outcome);
            lock(&self.calls.0.calls).remove(&self.call.id);
            self.calls.forget(self.call.id);
            return;
        }
        fault_point!("deferred.done");
        let CallOutcome { call, result, from_source, duration, notices, receipt, .. } = outcome;
        let stops = self.calls.0.closing.is_cancelled();
        if result.as_ref().is_err_and(|error| stops && !error.is(codes::DAEMON_STOPPING)) {
            // The call ends with the daemon: the next one says so.
            return;
        }
        let cancelled = |error: &ToolError| error.is(codes::CANCELLED) && self.call.is_stopped();
        let end = match result {
            Err(error) if cancelled(&error) => DeferredEnd::Cancelled,
            result => {
                let user = Some(self.call.user);
                let owner = ResultOwner { user, session, call, view: &view, most_bytes: None };
                let result = match result {
                    Ok(value) => dispatcher.fit(&self.call.tool, owner, value, KEPT_BYTES).await,
                    error => error,
                };
                let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                DeferredEnd::Answered { call, result, from_source, notices, duration_ms }
            }
        };
        self.end(end, receipt).await;
    }

    /// Makes the end durable. What the call gave away counts as received then: it is kept until it
    /// expires.
    async fn end(&self, end: DeferredEnd, receipt: Option<ReceiptPad>) {
        let at = Utc::now();
        let record = DeferredRecord::Ended { end, at };
        let written = match self.log.decide::<LogError>(|_| Ok(Decision::record(record))) {
            Ok(written) => written.await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // The journal has stopped, and the daemon with it: the next one says that it is lost.
            tracing::error!(%error, id = %self.call.id, "the end of a call is not kept");
            return;
        }
        fault_point!("deferred.kept");
        receipt.into_iter().for_each(ReceiptPad::sign);
        self.call.end(at);
    }

    async fn while_telling(
        &mut self,
        work: impl Future<Output = CallOutcome> + Send,
    ) -> CallOutcome {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => {
                    while let Ok(update) = self.updates.try_recv() {
                        self.tell(update);
                    }
                    return outcome;
                }
                Some(update) = self.updates.recv() => self.tell(update),
            }
        }
    }

    fn tell(&self, update: ProgressUpdate) {
        self.call.note(&update.message);
        self.outlet.report(update.done, update.total, update.message);
    }
}

/// The outcome of work that panicked.
fn vanished() -> CallOutcome {
    CallOutcome {
        call: CallId::new(),
        result: Err(ToolError::internal("the work of the call ended without an answer")),
        from_source: false,
        duration: Duration::ZERO,
        notices: Vec::new(),
        waiting: None,
        receipt: None,
    }
}

/// Decorator of the client's prompt: a question before the call is handed out is the answer to it,
/// and one after that waits beside the handle.
#[derive(Debug)]
struct DeferredPrompt {
    call: Arc<HeldCall>,
    client: Arc<dyn ClientPrompt>,
}

#[async_trait]
impl ClientPrompt for DeferredPrompt {
    async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
        match self.call.is_known() {
            true => self.call.ask(id, question).await,
            false => self.client.ask(id, question).await,
        }
    }

    fn repeats(&self) -> bool {
        self.call.answer_first()
    }

    fn used(&self, id: ApprovalId) {
        self.client.used(id);
    }
}
