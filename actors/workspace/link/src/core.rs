//! State shared by the handles, the reader and the writer of one link.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hivekeep_kernel::lock;
use hivekeep_protocol::{GuestEvent, GuestRequest, ToGuest, encode};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{CallTerms, OpenCall};
use crate::calls::{Calls, Slot};
use crate::error::{Ending, LinkDown, LinkError, Violation};
use crate::inbox::{Exchange, Reply};
use crate::options::LinkOptions;
use crate::outbox::Outbox;
use crate::reader::KEPT_EVENTS;

/// Age of the last frame below which a guest counts as alive.
const HEARD_WITHIN_MS: u64 = 10_000;

/// Maximum number of frames that an older link's calls can have left behind: a reply each, and the
/// data in the guest's queue.
const MAX_STRAYS: u32 = 4096;

pub(super) struct Core {
    pub(super) calls: Calls,
    pub(super) outbox: Outbox,
    pub(super) options: LinkOptions,
    /// Sender of events; `None` once the link is down, which ends the receivers.
    events: Mutex<Option<broadcast::Sender<GuestEvent>>>,
    down: CancellationToken,
    reason: OnceLock<LinkDown>,
    began: Instant,
    /// Number of frames of an older link that may still turn up.
    strays_left: AtomicU32,
    /// Time of the last frame from the guest, in milliseconds since `began`.
    heard_ms: AtomicU64,
}

impl Core {
    pub(super) fn new(
        outbox: Outbox,
        options: LinkOptions,
        first_id: u32,
        has_connections: bool,
    ) -> Self {
        let strays = if has_connections { 0 } else { MAX_STRAYS };
        Self {
            calls: Calls::new(first_id),
            strays_left: AtomicU32::new(strays),
            outbox,
            options,
            events: Mutex::new(Some(broadcast::Sender::new(KEPT_EVENTS))),
            down: CancellationToken::new(),
            reason: OnceLock::new(),
            began: Instant::now(),
            heard_ms: AtomicU64::new(0),
        }
    }

    /// Ends the link. Only the first reason counts.
    pub(super) fn close(&self, reason: LinkDown) {
        if self.reason.set(reason).is_ok() {
            self.down.cancel();
            self.calls.end();
            lock(&self.events).take();
        }
    }

    pub(super) fn down(&self) -> Option<&LinkDown> {
        self.reason.get()
    }

    pub(super) async fn closed(&self) -> LinkDown {
        self.down.cancelled().await;
        self.reason.get().cloned().unwrap_or(LinkDown::Closed)
    }

    /// True if a frame of a call that is not open counts as one of an older link, and is dropped. A stream
    /// without connections may have such frames.
    pub(super) fn is_stray(&self) -> bool {
        let fewer = |left: u32| left.checked_sub(1);
        self.strays_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    /// Error of a call that found the link closed.
    pub(super) fn down_error(&self) -> LinkError {
        LinkError::Down(self.down().cloned().unwrap_or(LinkDown::Closed))
    }

    pub(super) fn note_activity(&self) {
        self.heard_ms.store(self.since_began(), Ordering::Relaxed);
    }

    /// Time since anything came from the guest.
    pub(super) fn silent_ms(&self) -> u64 {
        self.since_began().saturating_sub(self.heard_ms.load(Ordering::Relaxed))
    }

    fn since_began(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn publish(&self, event: GuestEvent) {
        if let Some(sender) = &*lock(&self.events) {
            // An error only says that nobody listens.
            let _ = sender.send(event);
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<GuestEvent> {
        match &*lock(&self.events) {
            Some(sender) => sender.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Converts the reply to a request of type `R`. Another kind of reply ends the link.
    pub(super) fn typed<R: GuestRequest>(&self, reply: Reply) -> Result<R::Reply, LinkError> {
        let reply = reply.map_err(LinkError::Guest)?;
        R::reply_of(reply).ok_or_else(|| {
            self.close(Violation::WrongReply.into());
            LinkError::Down(Violation::WrongReply.into())
        })
    }

    /// Opens a call: takes a slot, then sends the request.
    pub(super) async fn open(
        self: &Arc<Self>,
        request: ToGuest,
        exchange: Exchange,
        slot: Slot,
        wait: &CallTerms,
    ) -> Result<OpenCall, LinkError> {
        let payload = encode(&request).map_err(LinkError::Request)?;
        drop(request);
        let room = async {
            let slot = self.calls.slot(slot).await?;
            Some((slot, self.outbox.room(payload.len()).await?))
        };
        let (slot, room) = tokio::select! {
            biased;
            _ = self.down.cancelled() => return Err(self.down_error()),
            stop = wait.over() => {
                // A guest that is silent altogether hangs; the supervisor handles that.
                if self.calls.stuck() && self.silent_ms() < HEARD_WITHIN_MS {
                    self.close(Violation::CallsUnanswered.into());
                }
                return Err(stop.error(Ending::NotSent));
            }
            room = room => room.ok_or_else(|| self.down_error())?,
        };
        let call = self.calls.open(exchange, slot);
        self.outbox.request(call.id, payload, room);
        Ok(OpenCall::new(self.clone(), call, exchange.window()))
    }
}
