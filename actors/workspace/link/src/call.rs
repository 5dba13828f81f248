//! Client side of one call: deadline, cancellation and flow control.

use std::{sync::Arc, time::Duration};

use hivekeep_protocol::GuestCode;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    calls::{Call, STUCK_AFTER},
    core::Core,
    error::{Ending, LinkError},
    inbox::{Inbox, Reply, Taken},
};

/// Divisor of the window: credit is granted in portions of this part, so that the guest never runs
/// dry while the caller keeps up, and credit frames stay rare, since each interrupts the guest.
const GRANT_PART: u32 = 4;

/// Deadline and cancellation of a waiting caller.
#[derive(Debug, Clone)]
pub struct CallTerms {
    /// Time to give up.
    pub deadline: Instant,
    /// Token that makes the caller give up at once.
    pub cancel: CancellationToken,
}

impl CallTerms {
    /// Waits for this long, not cancellable.
    pub fn at_most(time: Duration) -> Self {
        Self { deadline: Instant::now() + time, cancel: CancellationToken::new() }
    }

    /// Resolves when it is time to give up.
    pub(super) async fn over(&self) -> Stop {
        tokio::select! {
            biased;
            _ = self.cancel.cancelled() => Stop::Cancelled,
            _ = sleep_until(self.deadline) => Stop::Deadline,
        }
    }

    fn is_over(&self) -> Option<Stop> {
        if self.cancel.is_cancelled() {
            Some(Stop::Cancelled)
        } else {
            (Instant::now() >= self.deadline).then_some(Stop::Deadline)
        }
    }
}

/// Reason why a caller gave up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Deadline,
    Cancelled,
}

impl Stop {
    pub(super) fn error(self, ending: Ending) -> LinkError {
        match self {
            Self::Deadline => LinkError::Deadline(ending),
            Self::Cancelled => LinkError::Cancelled(ending),
        }
    }
}

/// Call that was sent. Dropping it before its reply cancels it in the guest.
pub(super) struct OpenCall {
    core: Arc<Core>,
    call: Arc<Call>,
    /// Number of bytes received and not yet granted again.
    consumed: u32,
    /// Number of bytes that the guest may have in flight.
    window: u32,
    /// True when there is nothing left to cancel.
    ended: bool,
    /// Once it fires, the work of a call that is given up goes on in the guest.
    pub(super) spared: Option<CancellationToken>,
}

impl OpenCall {
    pub(super) fn new(core: Arc<Core>, call: Arc<Call>, window: u32) -> Self {
        Self { core, call, consumed: 0, window, ended: false, spared: None }
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    pub(super) fn id(&self) -> u32 {
        self.call.id
    }

    /// Waits for the reply alone.
    pub(super) async fn reply(&mut self, wait: &CallTerms) -> Result<Reply, LinkError> {
        self.until(wait, Inbox::take_reply).await
    }

    /// Waits for data or the reply, and takes everything available.
    pub(super) async fn turn(&mut self, wait: &CallTerms) -> Result<Taken, LinkError> {
        self.until(wait, Inbox::take).await
    }

    /// Waits until `look` finds something in the inbox.
    ///
    /// When the wait is over the guest is asked to end the call, and has the grace period to report
    /// the outcome: a call that succeeded after all has succeeded.
    pub(super) async fn until<T>(
        &mut self,
        wait: &CallTerms,
        mut look: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T, LinkError> {
        loop {
            if let Some(found) = self.look(&mut look) {
                return Ok(found);
            }
            if self.core.down().is_some() {
                self.ended = true;
                return Err(self.core.down_error());
            }
            let stop = match wait.is_over() {
                Some(stop) => stop,
                None => tokio::select! {
                    biased;
                    _ = self.call.wake.notified() => continue,
                    stop = wait.over() => stop,
                },
            };
            return self.stop(stop, look).await;
        }
    }

    fn look<T>(&mut self, look: &mut impl FnMut(&mut Inbox) -> Option<T>) -> Option<T> {
        let mut inbox = self.call.inbox();
        let answered = inbox.reply().is_some();
        let found = look(&mut inbox);
        self.ended |= answered;
        found
    }

    async fn stop<T>(
        &mut self,
        stop: Stop,
        mut look: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T, LinkError> {
        if self.cancel_in_guest() {
            // The outcome is read from the inbox.
            let _ = timeout(self.core.options.cancel_grace(), self.answered()).await;
        }
        let was_cancelled =
            |reply: &Reply| reply.as_ref().is_err_and(|error| error.code == GuestCode::Cancelled);
        let confirmed = self.call.inbox().reply().map(was_cancelled);
        if confirmed == Some(false)
            && let Some(found) = self.look(&mut look)
        {
            return Ok(found);
        }
        // The cancel is sent; the call only has to be abandoned.
        self.core.calls.abandon(&self.call);
        self.ended = true;
        Err(stop.error(match confirmed {
            Some(_) => Ending::Confirmed,
            None => Ending::Unconfirmed,
        }))
    }

    /// Has the guest end the call, unless it is spared; true if it is to end.
    fn cancel_in_guest(&self) -> bool {
        let spared = self.spared.as_ref().is_some_and(CancellationToken::is_cancelled);
        if !spared {
            self.core.outbox.cancel(self.call.id);
        }
        !spared
    }

    /// Ends the call because the caller cannot continue, and waits until the guest has closed it:
    /// it has then undone what it began.
    pub(super) async fn withdraw(&mut self, wait: &CallTerms) {
        self.core.outbox.cancel(self.call.id);
        tokio::select! {
            biased;
            () = self.answered() => {}
            _ = wait.over() => {}
            () = sleep(STUCK_AFTER) => {}
        }
        self.core.calls.abandon(&self.call);
        self.ended = true;
    }

    /// Resolves when the guest has answered or can no longer answer.
    async fn answered(&self) {
        while self.call.inbox().reply().is_none() && self.core.down().is_none() {
            self.call.wake.notified().await;
        }
    }

    /// Grants the guest as many bytes as the caller has processed.
    pub(super) fn consumed(&mut self, bytes: usize) {
        // Bounded by the outstanding credit, which fits.
        self.consumed += u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.consumed >= self.window / GRANT_PART && !self.ended {
            let bytes = std::mem::take(&mut self.consumed);
            self.call.inbox().grant(bytes);
            self.core.outbox.credit(self.call.id, bytes);
        }
    }

    /// Widens the window to this many bytes, if that is more than the initial credit. Must be
    /// called before anything was received.
    pub(super) fn widen(&mut self, window: u32) {
        let more = window.saturating_sub(self.window);
        if more > 0 {
            self.window = window;
            self.call.inbox().grant(more);
            self.core.outbox.credit(self.call.id, more);
        }
    }

    /// Runs the caller's own I/O (a source, a sink) under the call's wait.
    pub(super) async fn run<F: Future>(
        &mut self,
        wait: &CallTerms,
        work: F,
    ) -> Result<F::Output, LinkError> {
        tokio::select! {
            biased;
            down = self.core.closed() => Err(LinkError::Down(down)),
            stop = wait.over() => Err(stop.error(Ending::Unconfirmed)),
            output = work => Ok(output),
        }
    }

    pub(super) fn shared(&self) -> Arc<Core> {
        self.core.clone()
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.ended && self.core.calls.abandon(&self.call) {
            self.cancel_in_guest();
        }
    }
}
