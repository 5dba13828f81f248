//! Durable event bus, and its subscriptions.
//!
//! All events of the daemon form one sequence without gaps, written by the same thread as the
//! streams. A subscriber catches up from the past, then gets what is live; it never holds a publisher up: one
//! that falls behind learns which range it missed and can read it here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::spawn_blocking;

use crate::request::WriteOperation;
use crate::shared::JournalShared;
use crate::values::{self, BaseKey, StoredValues};
use crate::{Error, Journal, JournalEvent, MadeEvent, NewEvent, Seq, StopReason};

/// Handle on the events; clones share them.
#[derive(Debug, Clone)]
pub struct Events {
    journal: Journal,
}

/// Page of past events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventPage {
    /// First and last of the requested events that are trimmed already.
    pub missed: Option<(Seq, Seq)>,
    /// Events in order, without a gap. Empty at the end.
    pub events: Vec<JournalEvent>,
}

impl Events {
    pub(crate) fn new(journal: Journal) -> Self {
        Events { journal }
    }

    /// Publishes an event; durable on return.
    pub async fn publish(&self, event: NewEvent) -> Result<Seq, Error> {
        self.journal.ask(WriteOperation::Publish { event }).await
    }

    /// Queues an event and returns at once. The event precedes everything that its caller asks of
    /// the journal afterwards, and is on the disk a few milliseconds later, together with others.
    /// False if the event was lost because the queue was full, the event too large or the journal
    /// stopped; a running journal publishes the number of lost events as `events.lost`.
    pub fn publish_later(&self, event: NewEvent) -> bool {
        self.queue(WriteOperation::Publish { event })
    }

    /// The same for an event that the writer makes when it gets to it, so that a publisher in a hurry
    /// pays for none of it, and that is read back only if somebody has subscribed. `make` must not
    /// panic or wait, and its event takes about `bytes`: that much room it is given in the queue.
    pub fn publish_made_later<D: Serialize>(
        &self,
        bytes: usize,
        make: impl FnOnce() -> MadeEvent<D> + Send + 'static,
    ) -> bool {
        let make = Box::new(move |at| make().encode(at));
        self.queue(WriteOperation::PublishMade { bytes, make })
    }

    fn queue(&self, work: WriteOperation) -> bool {
        let queued = work.check(self.journal.options()).is_ok() && self.journal.try_tell(work);
        if !queued {
            self.journal.shared().lose_event();
        }
        queued
    }

    /// Subscribes from `from`, or from the next event. Past events come first, then live ones,
    /// without gaps or duplicates.
    ///
    /// `capacity`, in events, is how far the subscriber may fall behind before it misses some (at
    /// most `events_buffered`), and the size of each read of the past.
    pub fn subscribe(&self, from: Option<Seq>, capacity: usize) -> Subscription {
        Subscription::new(self.journal.shared().clone(), from, capacity)
    }

    /// Reads up to `limit` durable events beginning with `from`. Blocks.
    pub fn read(&self, from: Seq, limit: usize) -> Result<EventPage, Error> {
        read(self.journal.shared(), from, limit)
    }

    /// Last durable event, 0 when there is none.
    pub fn last(&self) -> Seq {
        Seq::new(self.journal.shared().last_event.load(SeqCst))
    }
}

pub(crate) fn read(shared: &JournalShared, from: Seq, limit: usize) -> Result<EventPage, Error> {
    let mut expected = from.max(Seq::FIRST);
    // Events past this one may not be on the disk yet. Read before the database is taken:
    // compaction may exchange it, and the old one receives nothing more.
    let last = Seq::new(shared.last_event.load(SeqCst));
    let live = shared.live()?;
    let mut page = EventPage::default();
    if expected > last {
        return Ok(page);
    }
    let first_key = BaseKey::Event(expected).encode();
    for value in StoredValues::new(live.db.range(first_key..vec![values::EVENT + 1])).take(limit) {
        let value = value?;
        let BaseKey::Event(seq) = value.base else { break };
        if seq > last {
            break;
        }
        if seq != expected {
            // Trimming removes the oldest, so a gap is possible only at the start.
            if !page.events.is_empty() {
                return Err(Error::unreadable_event(expected, "the event is missing".into()));
            }
            page.missed = Some((expected, seq.prev()));
        }
        page.events.push(JournalEvent::decode(seq, &value.bytes)?);
        expected = seq.next();
    }
    Ok(page)
}

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
        let EventPage { events, .. } =
            spawn_blocking(move || read(&shared, from, limit))
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
