//! RPC client to a guest: multiplexed calls over one connection, on the host's side.
//!
//! ```text
//!  Link (handle) ── ask/exec/upload/download ──► outbox ──► writer ──► ┐
//!     ▲                                                               carrier ── guest
//!     └────── inbox of the call ◄───────────────── reader ◄─────────── ┘
//! ```
//! A [`Link`] is one connection; two tasks serve it. Calls share it and do not wait for each other:
//! each has its own inbox, bounded by the credit that it granted. The guest is not trusted: any
//! breach of the protocol ends the link with a reason ([`LinkDown`]), and the memory that it can
//! make the host use is bounded by the calls in flight (256) times a mebibyte of data, or of reply,
//! each, and by the streams to ports (128) times a quarter of that. A [`LinkSupervisor`] keeps one link up and reports its state to its owner.

mod call;
mod calls;
pub mod carrier;
pub mod codes;
mod core;
mod error;
mod exec;
#[cfg(any(test, feature = "test-util"))]
pub mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handshake;
mod inbox;
mod options;
mod outbox;
mod reader;
mod stream;
mod supervisor;
pub mod tasks;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;

use hivekeep_protocol::{GuestRequest, GuestWelcome, Ping};
use tokio_util::sync::CancellationToken;

pub use call::CallTerms;
pub use error::{AttemptError, Ending, LinkDown, LinkError, Violation, guest_code, link_error};
pub use exec::{AuthenticationRecord, CapturedOutput, CapturedText, ExecOutput, capped_text};
pub use options::{Endpoint, LinkOptions, LinkSupervisorOptions, LinkToken};
pub use reader::{GuestEvents, MAX_EVENT_BYTES};
pub use stream::GuestStream;
pub use supervisor::{LinkChange, LinkSupervisor, LinkSupervisorArgs, LinkSupervisorMsg};

use calls::Slot;
use carrier::Carrier;
use core::Core;
use inbox::Exchange;
use outbox::Outbox;

/// Connection to a guest that accepted the host. Clones are cheap; when the last is dropped the
/// connection is closed.
#[derive(Clone)]
pub struct Link {
    handle: Arc<Handle>,
}

/// Drop guard that closes the link with the last [`Link`]; the tasks hold only the core.
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.close(LinkDown::Closed);
    }
}

impl Link {
    /// Connects, trying again until the guest is up or the deadline passes.
    ///
    /// # Errors
    /// [`LinkError::Refused`] and [`LinkError::WrongPeer`] at once; [`LinkError::Unreachable`] at
    /// the deadline; [`LinkError::Cancelled`].
    pub async fn connect(
        endpoint: &Endpoint,
        token: &LinkToken,
        options: &LinkOptions,
        cancel: &CancellationToken,
    ) -> Result<(Self, GuestWelcome), LinkError> {
        Self::connect_over(&*endpoint.carrier(), token, options, cancel).await
    }

    /// Connects like [`Link::connect`] over any carrier.
    ///
    /// # Errors
    /// See [`Link::connect`].
    pub async fn connect_over(
        carrier: &dyn Carrier,
        token: &LinkToken,
        options: &LinkOptions,
        cancel: &CancellationToken,
    ) -> Result<(Self, GuestWelcome), LinkError> {
        let (connection, greeted) = handshake::dial(carrier, token, options, cancel).await?;
        let (outbox, queues) = Outbox::new();
        let first_id = getrandom::u32().map_err(|error| LinkError::Unreachable {
            attempts: 1,
            last: AttemptError::Connect(error.into()),
        })?;
        let core =
            Arc::new(Core::new(outbox, options.clone(), first_id, carrier.has_connections()));
        let reader = reader::read_until_down(core.clone(), connection.reader, greeted.received);
        tokio::spawn(reader);
        tokio::spawn(reader::write_until_down(core.clone(), connection.writer, queues));
        Ok((Self { handle: Arc::new(Handle { core }) }, greeted.welcome))
    }

    fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// Sends a request and waits for the answer. A dropped future cancels the call in the guest.
    ///
    /// # Errors
    /// [`LinkError::Guest`] with the guest's own error; [`LinkError::Deadline`]
    /// and [`LinkError::Cancelled`], at most the grace after `wait` is over (a
    /// call that the guest completed meanwhile is answered as completed);
    /// [`LinkError::Down`]; [`LinkError::Request`] when it is too large to send.
    pub async fn ask<R: GuestRequest>(
        &self,
        request: R,
        wait: CallTerms,
    ) -> Result<R::Reply, LinkError> {
        self.ask_from(Slot::Ordinary, request, wait).await
    }

    /// Sends a request like [`Link::ask`] that has to pass when all ordinary slots are taken: liveness,
    /// kill, shutdown.
    ///
    /// # Errors
    /// See [`Link::ask`].
    pub async fn ask_reserved<R: GuestRequest>(
        &self,
        request: R,
        wait: CallTerms,
    ) -> Result<R::Reply, LinkError> {
        self.ask_from(Slot::Reserved, request, wait).await
    }

    /// Sends a request like [`Link::ask`] that waits for news in the guest. Such calls have slots of their
    /// own, and wait for one when all are taken: however many there are, they keep no others out.
    ///
    /// # Errors
    /// See [`Link::ask`].
    pub async fn ask_waiting<R: GuestRequest>(
        &self,
        request: R,
        wait: CallTerms,
    ) -> Result<R::Reply, LinkError> {
        self.ask_from(Slot::Waiting, request, wait).await
    }

    async fn ask_from<R: GuestRequest>(
        &self,
        slot: Slot,
        request: R,
        wait: CallTerms,
    ) -> Result<R::Reply, LinkError> {
        let mut call = self.core().open(request.into_wire(), Exchange::Plain, slot, &wait).await?;
        let reply = call.reply(&wait).await?;
        self.core().typed::<R>(reply)
    }

    /// Pings the guest's daemon.
    ///
    /// # Errors
    /// See [`Link::ask`]. A pong that does not match the ping ends the link.
    pub async fn ping(&self, wait: CallTerms) -> Result<(), LinkError> {
        let payload = b"hivekeep".to_vec();
        let pong = self.ask_reserved(Ping { payload: payload.clone() }, wait).await?;
        if pong.payload != payload {
            self.core().close(Violation::WrongReply.into());
            return Err(self.core().down_error());
        }
        Ok(())
    }

    /// Subscribes to the guest's events from now on.
    pub fn events(&self) -> GuestEvents {
        GuestEvents::new(self.core().subscribe())
    }

    /// Resolves with the reason when the link has ended. Does not keep it open.
    pub fn closed(&self) -> impl Future<Output = LinkDown> + Send + 'static {
        let core = self.core().clone();
        async move { core.closed().await }
    }

    /// True until the link has ended.
    pub fn is_up(&self) -> bool {
        self.core().down().is_none()
    }

    /// Ends the link for all its handles.
    pub fn close(&self, reason: LinkDown) {
        self.core().close(reason);
    }

    /// Number of calls that the guest has not closed yet.
    pub fn calls_in_flight(&self) -> usize {
        self.core().calls.count()
    }

    /// Milliseconds since anything came from the guest.
    pub fn silent_ms(&self) -> u64 {
        self.core().silent_ms()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("up", &self.is_up())
            .field("calls_in_flight", &self.calls_in_flight())
            .finish()
    }
}
