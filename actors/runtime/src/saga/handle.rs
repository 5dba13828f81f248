//! A handle of a saga: records, watches and cancels it. It outlives the saga's incarnations.

use std::sync::Arc;

use hivekeep_kernel::ToolError;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{Saga, SagaState};
use crate::log::{Decision, Log, LogError, Sourced};

type RecordOf<G> = <<G as Saga>::State as Sourced>::Record;

/// A saga as it is seen: what is durable, and what is never recorded.
pub struct SagaView<G: Saga> {
    /// State with every record on the disk.
    pub state: G::State,
    /// State of the incarnation that runs, never recorded.
    pub live: G::Live,
    /// Why no incarnation follows before the daemon's next start.
    pub given_up: Option<String>,
}

impl<G: Saga> Clone for SagaView<G> {
    fn clone(&self) -> Self {
        let Self { state, live, given_up } = self;
        Self { state: state.clone(), live: live.clone(), given_up: given_up.clone() }
    }
}

impl<G: Saga> SagaView<G> {
    pub(crate) fn new(state: G::State) -> Self {
        Self { state, live: G::Live::default(), given_up: None }
    }
}

/// See the module. Clones are one.
pub struct SagaHandle<G: Saga> {
    log: Log<G::State>,
    view: Arc<watch::Sender<SagaView<G>>>,
    cancelled: CancellationToken,
}

impl<G: Saga> Clone for SagaHandle<G> {
    fn clone(&self) -> Self {
        let Self { log, view, cancelled } = self;
        Self { log: log.clone(), view: view.clone(), cancelled: cancelled.clone() }
    }
}

/// Why a saga is not cancelled.
enum NotCancelled {
    NothingLeft,
    Log(LogError),
}

impl From<LogError> for NotCancelled {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl<G: Saga> SagaHandle<G> {
    /// The handle of a saga with this log; `None` when nothing is recorded of it.
    pub fn new(log: Log<G::State>) -> Option<Self> {
        let view = SagaView::<G>::new(log.state()?);
        let cancelled = CancellationToken::new();
        if view.state.is_cancelled() {
            cancelled.cancel();
        }
        Some(Self { log, view: Arc::new(watch::channel(view).0), cancelled })
    }

    /// The state with everything that is on the disk.
    pub fn state(&self) -> G::State {
        self.view.borrow().state.clone()
    }

    /// Looks at the saga without a copy; `look` is short, and asks nothing of this handle.
    pub fn view<R>(&self, look: impl FnOnce(&SagaView<G>) -> R) -> R {
        look(&self.view.borrow())
    }

    /// Watches the saga.
    pub fn watch(&self) -> watch::Receiver<SagaView<G>> {
        self.view.subscribe()
    }

    /// Fires when the saga is cancelled, which is durable by then.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Changes the state that is seen and never recorded.
    pub fn update(&self, change: impl FnOnce(&mut G::Live)) {
        self.view.send_modify(|view| change(&mut view.live));
    }

    /// Lets everybody see that no incarnation follows before the daemon's next start. It can still be
    /// cancelled.
    pub fn give_up(&self, reason: &str) {
        self.view.send_modify(|view| view.given_up = Some(reason.to_owned()));
    }

    /// Waits until everything decided is written, and folded.
    pub async fn settled(&self) {
        self.log.idle().await;
    }

    /// Records; everybody sees it when it is durable.
    ///
    /// # Errors
    /// When the log cannot be written, or the record does not follow.
    pub async fn record(&self, record: RecordOf<G>) -> Result<(), LogError> {
        self.decide(|_| Ok(Decision::record(record))).await
    }

    /// Decides, of the state with everything decided before; everybody sees it when it is durable.
    ///
    /// # Errors
    /// As `decide` refuses; when the log cannot be written.
    pub async fn decide<E: From<LogError>>(
        &self,
        decide: impl FnOnce(&G::State) -> Result<Decision<RecordOf<G>>, E>,
    ) -> Result<(), E> {
        let (done, written) = oneshot::channel();
        let Self { log, view, cancelled } = self.clone();
        let begun = |state: Option<&G::State>| decide(state.expect("a handle has a state"));
        self.log.decide_then(begun, move |outcome| {
            if let (Ok(()), Some(state)) = (&outcome, log.state()) {
                // Here, not where it is waited for: whoever cancelled may have gone.
                if state.is_cancelled() {
                    cancelled.cancel();
                }
                view.send_modify(|view| view.state = state);
            }
            // Whoever decided may have gone.
            drop(done.send(outcome));
        })?;
        written.await.unwrap_or_else(|_| Err(self.log.unwritten())).map_err(E::from)
    }

    /// Cancels the saga: answers when that is durable, and false when nothing was left to cut short.
    ///
    /// # Errors
    /// `journal_failed`.
    pub async fn cancel(&self) -> Result<bool, ToolError> {
        let record = |state: &G::State| {
            state.cancellation().map(Decision::record).ok_or(NotCancelled::NothingLeft)
        };
        match self.decide(record).await {
            Ok(()) => Ok(true),
            Err(NotCancelled::NothingLeft) => Ok(false),
            Err(NotCancelled::Log(error)) => Err(error.into()),
        }
    }

    /// Removes all records, behind everything decided.
    ///
    /// # Errors
    /// As [`Log::forget`].
    pub(crate) async fn forget(&self) -> Result<(), LogError> {
        self.log.forget().await
    }

    /// Begins an incarnation, behind everything that was decided for the one before it. False when
    /// the saga is forgotten.
    pub(super) async fn resume(&self) -> bool {
        self.log.idle().await;
        let Some(state) = self.log.state() else { return false };
        if state.is_cancelled() {
            self.cancelled.cancel();
        }
        self.view.send_replace(SagaView::new(state));
        true
    }
}
