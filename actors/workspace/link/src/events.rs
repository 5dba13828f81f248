use hivekeep_protocol::GuestEvent;
use tokio::sync::broadcast;

/// Maximum size of an event payload.
pub const MAX_EVENT_BYTES: usize = hivekeep_protocol::limits::MAX_EVENT_BYTES;

/// Number of events kept for a receiver that is behind.
pub(super) const KEPT_EVENTS: usize = 256;

/// Events that the guest pushes. They are hints: a receiver that is more than 256 behind loses the
/// oldest, and asks the guest for the truth.
pub struct GuestEvents {
    receiver: broadcast::Receiver<GuestEvent>,
    dropped: u64,
}

impl GuestEvents {
    pub(super) fn new(receiver: broadcast::Receiver<GuestEvent>) -> Self {
        Self { receiver, dropped: 0 }
    }

    /// Next event; `None` once the link is down and all are read.
    pub async fn recv(&mut self) -> Option<GuestEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => self.dropped += missed,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Number of events lost to this receiver because it was behind.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
