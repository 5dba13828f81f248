//! Event subscription: catch-up from the past, then live delivery.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::spawn_blocking;

use crate::events::{self, EventPage};
use crate::shared::JournalShared;
use crate::{Error, JournalEvent, Seq, StopReason};

/// Item that a subscriber receives.
#[derive(Debug, Clone, PartialEq)]
pub enum SubscriptionItem {
    /// Next event.
    Event(Arc<JournalEvent>),
    /// Events that were not delivered: the subscriber was too slow, or they are trimmed.
    /// [`crate::Events::read`] returns what is still kept.
    Missed {
        /// First event missed.
        first: Seq,
        /// Last event missed.
        last: Seq,
    },
}

/// Subscription to events. Delivers every number once, as an event or as part of a missed range,
/// first from the past and then live.
pub struct Subscription {
    shared: Arc<JournalShared>,
    live: broadcast::Receiver<Arc<JournalEvent>>,
    stopped: watch::Receiver<Option<StopReason>>,
    capacity: usize,
    /// Next number to deliver.
    next: Seq,
    /// Events read from the past, or kept back behind a `Missed`.
    ahead: VecDeque<Arc<JournalEvent>>,
    /// True while the past may hold more.
    catching_up: bool,
}

impl Subscription {
    pub(crate) fn new(shared: Arc<JournalShared>, from: Option<Seq>, capacity: usize) -> Self {
        // Receiver first, then the number: what commits in between is in both, and `next` drops the
        // duplicate.
        let live = shared.events.subscribe();
        let after_last = Seq::new(shared.last_event.load(SeqCst)).next();
        let next = from.map_or(after_last, |from| from.max(Seq::FIRST));
        let catching_up = next < after_last;
        Subscription {
            stopped: shared.watch_stopped(),
            shared,
            live,
            capacity: capacity.max(1),
            next,
            ahead: VecDeque::new(),
            catching_up,
        }
    }

    /// Waits for the next delivery; may be cancelled without losing one. Fails when the journal has
    /// stopped or its past is unreadable.
    pub async fn next(&mut self) -> Result<SubscriptionItem, Error> {
        loop {
            if let Some(event) = self.ahead.front() {
                if event.seq > self.next {
                    return Ok(self.miss(event.seq.prev()));
                }
                let event = self.ahead.pop_front().expect("it was just looked at");
                if event.seq == self.next {
                    self.next = self.next.next();
                    return Ok(SubscriptionItem::Event(event));
                }
                continue;
            }
            if self.catching_up {
                self.read_past().await?;
                continue;
            }
            while self.live.len() > self.capacity {
                // Fallen behind: the gap shows on the event after it.
                let _ = self.live.try_recv();
            }
            // Events published before the end are delivered before the end.
            let received = tokio::select! {
                biased;
                received = self.live.recv() => received,
                _ = self.stopped.wait_for(Option::is_some) => Err(RecvError::Closed),
            };
            match received {
                Ok(event) => self.ahead.push_back(event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(self.shared.why_stopped()),
            }
        }
    }

    async fn read_past(&mut self) -> Result<(), Error> {
        let (shared, from, limit) = (self.shared.clone(), self.next, self.capacity);
        let EventPage { events, .. } = spawn_blocking(move || events::read(&shared, from, limit))
            .await
            .map_err(|error| Error::unreadable(format!("reading events: {error}")))??;
        self.catching_up = !events.is_empty();
        self.ahead.extend(events.into_iter().map(Arc::new));
        Ok(())
    }

    fn miss(&mut self, last: Seq) -> SubscriptionItem {
        let first = self.next;
        self.next = last.next();
        SubscriptionItem::Missed { first, last }
    }
}
