//! Tool call: its identity, deadline, cancellation and progress, the end that answers it, and the receipt
//! that tells an actor whether its answer reached the caller.
//!
//! The answering end is in the manner of a promise: it is kept once, or broken, and then it says by itself
//! whether anything can have been done.
//!
//! Most tools do not care for a receipt. A tool that gives something away does: what was handed out and did
//! not arrive has to be handed out again. The dispatcher keeps the [`ReceiptPad`] of a call and passes
//! it to the front door with the answer; the door signs it once the answer is written. A pad
//! dropped unsigned (the caller has gone, was too late or cancelled, the connection broke, or the
//! answer was refused as too large) reports no delivery.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Addressing, AskError, CallId, SessionId, ToolError, ToolSpec, TraceContext, User,
    prompt::ClientPrompt, reservation::Reservation, tool::ToolView,
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
    /// E2B's API, for its SDKs.
    E2b,
    /// The command line.
    Cli,
    /// An agent of the daemon's, in a session below the one that began it. The daemon's own calls see more,
    /// and a person's may be let through as such.
    Agent,
    /// The daemon itself.
    Internal,
}

/// Key of a call whose caller may die before it has the answer. Whoever does the work keeps its result under the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectKey {
    /// Name of the call, the same for each attempt at it: letters, digits and `_./-`.
    pub key: String,
    /// True where an attempt before this one may have begun: nothing is begun, and the result of that one is given,
    /// or `effect_unknown`.
    pub again: bool,
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
    /// Key under which the call has its effect once; only of a tool that is declared so.
    pub effect: Option<Arc<EffectKey>>,
    /// Tracing span of the call; work done for the call enters it.
    pub span: tracing::Span,
}

impl CallCx {
    /// The same for a further command of the call, whose result has a name of its own.
    pub fn further(&self, name: &str) -> Self {
        let named =
            |it: &Arc<EffectKey>| EffectKey { key: format!("{}/{name}", it.key), again: it.again };
        Self { effect: self.effect.as_ref().map(named).map(Arc::new), ..self.clone() }
    }

    /// True for a call that may have been begun before, and begins nothing.
    pub fn again(&self) -> bool {
        self.effect.as_ref().is_some_and(|effect| effect.again)
    }

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
            effect: None,
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

/// Result of a call.
pub type CallResult = Result<Value, ToolError>;

type Ended = Box<dyn FnOnce(&CallResult) + Send + Sync>;

/// The answering end of a call. Dropped unanswered, it answers `actor_unavailable`: with the detail
/// `outcome` as `nothing_done` while no handler has begun, and as `unknown` from then on.
// One pointer: calls lie in every mailbox. Taken by the answer.
pub struct Responder(Option<Box<Promise>>);

struct Promise {
    caller: oneshot::Sender<CallResult>,
    ended: Option<Ended>,
    /// The actor or the kind of actors, as the tool's declaration names it.
    actor: &'static str,
    begun: bool,
}

impl Responder {
    /// The end that answers `caller`. `ended` is called once, when the work has ended and before the
    /// caller hears of it.
    pub fn new(
        tool: &ToolSpec,
        caller: oneshot::Sender<CallResult>,
        ended: impl FnOnce(&CallResult) + Send + Sync + 'static,
    ) -> Self {
        let actor = match tool.addressing {
            Addressing::Singleton(name) => name,
            Addressing::Field { kind, .. } => kind,
        };
        Self(Some(Box::new(Promise { caller, ended: Some(Box::new(ended)), actor, begun: false })))
    }

    /// Answers; the caller may have gone.
    pub fn answer(mut self, outcome: CallResult) {
        if let Some(promise) = self.0.take() {
            promise.answer(outcome);
        }
    }

    /// A handler takes the call: from here on something may have been done.
    pub fn begin(&mut self) {
        if let Some(promise) = &mut self.0 {
            promise.begun = true;
        }
    }
}

impl Promise {
    fn answer(self, outcome: CallResult) {
        if let Some(ended) = self.ended {
            ended(&outcome);
        }
        // The caller may have gone.
        drop(self.caller.send(outcome));
    }

    fn broken(self) {
        let error = ToolError::from(AskError::Dropped(self.actor.to_owned()));
        let error = if self.begun {
            error
                .next("its actor ended before it answered; see what was done before you repeat it")
                .detail("outcome", "unknown")
        } else {
            error.detail("outcome", "nothing_done")
        };
        self.answer(Err(error));
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(promise) = self.0.take() {
            promise.broken();
        }
    }
}

impl From<oneshot::Sender<CallResult>> for Responder {
    /// For calls that pass no admission, as tests make them.
    fn from(caller: oneshot::Sender<CallResult>) -> Self {
        Self(Some(Box::new(Promise { caller, ended: None, actor: "the actor", begun: false })))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}

/// Receiving end, for the actor. Cheap to clone. The default one is never signed.
#[derive(Debug, Clone, Default)]
pub struct Receipt(Option<watch::Receiver<bool>>);

/// Signing end, for the dispatcher and then the door.
#[derive(Debug)]
pub struct ReceiptPad(watch::Sender<bool>);

impl Receipt {
    /// Makes a receipt and its pad.
    pub fn pair() -> (ReceiptPad, Self) {
        let (sender, receiver) = watch::channel(false);
        (ReceiptPad(sender), Self(Some(receiver)))
    }

    /// Waits until it is known whether the answer was delivered. A client that does not read can
    /// delay this, so the caller sets a limit.
    pub async fn taken(self) -> bool {
        let Some(mut receiver) = self.0 else { return false };
        receiver.wait_for(|taken| *taken).await.is_ok_and(|taken| *taken)
    }
}

impl ReceiptPad {
    /// Confirms that the answer is written.
    pub fn sign(self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        time::Duration,
    };

    use super::*;

    fn cx(limit: Duration) -> CallCx {
        let cancel = CancellationToken::new();
        CallCx::internal(SessionId::new(), limit, cancel, tracing::Span::none())
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_its_call() {
        let cx = cx(Duration::from_secs(5));
        assert_eq!((cx.remaining(), cx.door), (Duration::from_secs(5), Door::Internal));
        assert_eq!(cx.guard(async { Ok(3) }).await, Ok(3));
        let never = || std::future::pending::<Result<(), ToolError>>();
        assert_eq!(cx.guard(never()).await.unwrap_err().code, "deadline_exceeded");
        assert_eq!(cx.remaining(), Duration::ZERO);
        cx.cancel.cancel();
        assert_eq!(cx.guard(never()).await.unwrap_err().code, "cancelled");
    }

    #[test]
    fn progress_is_wanted_as_long_as_somebody_hears_it() {
        assert!(!Progress::default().wanted());
        let (progress, mut heard) = Progress::channel(1);
        assert!(progress.wanted());
        progress.report(1.0, Some(2.0), "half");
        progress.report(2.0, Some(2.0), "lost: the channel is full");
        let half = ProgressUpdate { done: 1.0, total: Some(2.0), message: "half".to_owned() };
        assert_eq!((heard.try_recv().ok(), heard.try_recv().ok()), (Some(half), None));
        drop(heard);
        assert!(!progress.wanted());
    }

    #[test]
    fn a_permit_is_given_back_where_there_is_one() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let permit = AdmissionPermit::new(move || {
            counted.fetch_add(1, SeqCst);
        });
        permit.give_back();
        AdmissionPermit::default().give_back();
        assert_eq!(count.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn an_answer_is_told_once_and_one_that_is_lost_says_what_may_be_done() {
        let tool = crate::tool::tests::TOOL;
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let responder = || {
            let (caller, answer) = oneshot::channel();
            let told = told.clone();
            let ended = move |outcome: &CallResult| told.lock().unwrap().push(outcome.clone());
            (Responder::new(&tool, caller, ended), answer)
        };
        let (kept, answer) = responder();
        kept.answer(Ok(Value::from(1)));
        assert_eq!(answer.await.unwrap(), Ok(Value::from(1)));
        for (begun, outcome) in [(false, "nothing_done"), (true, "unknown")] {
            let (mut broken, answer) = responder();
            if begun {
                broken.begin();
            }
            drop(broken);
            let lost = answer.await.unwrap().unwrap_err();
            assert_eq!(
                (lost.code.as_ref(), &lost.details["outcome"]),
                ("actor_unavailable", &outcome.into())
            );
            assert!(lost.message.starts_with("files "), "{lost}");
        }
        assert_eq!(told.lock().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn only_a_signed_receipt_says_yes() {
        let (pad, receipt) = Receipt::pair();
        pad.sign();
        assert!(receipt.clone().taken().await);
        assert!(receipt.taken().await, "asked twice");
        let (pad, receipt) = Receipt::pair();
        drop(pad);
        assert!(!receipt.taken().await);
        assert!(!Receipt::default().taken().await);
    }
}
