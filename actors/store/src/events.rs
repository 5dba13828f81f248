//! The durable event bus.
//!
//! One sequence for the whole daemon, without gaps, written by the same thread
//! as the streams. A subscriber never holds a publisher up: one that falls
//! behind is told which range it missed and reads it here.

use std::sync::atomic::Ordering::SeqCst;

use crate::assemble::Values;
use crate::keys::{self, Base};
use crate::request::Work;
use crate::shared::Shared;
use crate::{Error, Event, Journal, NewEvent, Seq, Subscription};

/// A handle on the events; clones share them.
#[derive(Debug, Clone)]
pub struct Events {
    journal: Journal,
}

/// A part of the past.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// What was asked for and is trimmed already: first and last.
    pub missed: Option<(Seq, Seq)>,
    /// The events, in order, without a gap. Empty at the end.
    pub events: Vec<Event>,
}

impl Events {
    pub(crate) fn new(journal: Journal) -> Self {
        Events { journal }
    }

    /// Publishes an event; returns when it is on the disk.
    pub async fn publish(&self, event: NewEvent) -> Result<Seq, Error> {
        self.journal.ask(Work::Publish { event }).await
    }

    /// Queues an event and returns at once. It comes before whatever its caller
    /// asks of the journal afterwards, and is on the disk a few milliseconds
    /// later, with others. False when it was lost, because the queue was full, the
    /// event too large or the journal stopped; a running journal publishes the
    /// number of lost events as `events.lost`.
    pub fn publish_later(&self, event: NewEvent) -> bool {
        let work = Work::Publish { event };
        let queued = work.check(self.journal.options()).is_ok() && self.journal.try_tell(work);
        if !queued {
            self.journal.shared().lose_event();
        }
        queued
    }

    /// Subscribes from `from` on, or from the next event on. The past comes
    /// first, then what happens, with no gap and none twice.
    ///
    /// `capacity`, in events, is how far behind the subscriber may be before
    /// it misses some (at most `events_buffered`), and how many it reads from
    /// the past at a time.
    pub fn subscribe(&self, from: Option<Seq>, capacity: usize) -> Subscription {
        Subscription::new(self.journal.shared().clone(), from, capacity)
    }

    /// Reads up to `limit` durable events from `from` on. Blocks.
    pub fn read(&self, from: Seq, limit: usize) -> Result<Page, Error> {
        read(self.journal.shared(), from, limit)
    }

    /// The last durable event, 0 when there is none.
    pub fn last(&self) -> Seq {
        Seq::new(self.journal.shared().last_event.load(SeqCst))
    }
}

pub(crate) fn read(shared: &Shared, from: Seq, limit: usize) -> Result<Page, Error> {
    let mut expected = from.max(Seq::FIRST);
    // Events past this one may not be on the disk yet. Looked at before the
    // database is taken: compaction may exchange it, and the old one gets no more.
    let last = Seq::new(shared.last_event.load(SeqCst));
    let live = shared.live()?;
    let mut page = Page::default();
    if expected > last {
        return Ok(page);
    }
    let first_key = Base::Event(expected).encode();
    for value in Values::new(live.db.range(first_key..vec![keys::EVENT + 1])).take(limit) {
        let value = value?;
        let Base::Event(seq) = value.base else { break };
        if seq > last {
            break;
        }
        if seq != expected {
            // Trimming takes the oldest, so a gap is possible at the start only.
            if !page.events.is_empty() {
                return Err(Error::unreadable_event(expected, "the event is missing".into()));
            }
            page.missed = Some((expected, seq.prev()));
        }
        page.events.push(Event::decode(seq, &value.bytes)?);
        expected = seq.next();
    }
    Ok(page)
}
