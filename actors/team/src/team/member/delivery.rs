//! Deliveries: whatever waits for a member is leased to whoever receives in its name.
//!
//! ```text
//! request ─► queue ─► delivery ── ack ──► taken
//!              ▲           └──── nack, or dropped ──► redelivered, before anything behind it
//! ```
//! First come, first served, and one delivery of a member at a time, so that a receiver sees a
//! sender's messages in order. A delivery is not recorded: an incarnation begins with none, and
//! takes for delivered before what it finds.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    sync::Arc,
};

use hivekeep_kernel::{MessageId, ToolError};
use tokio::sync::oneshot;

use crate::{
    api::Unavailable,
    inbox::{Item, Message},
    refuse,
    tasks::result::StoredResult,
};

/// A call that receives.
pub(crate) struct Request {
    /// Most messages, and most results. With none it is answered at once, by the counts alone.
    pub(crate) limit: usize,
    /// Wait for something, instead of being told that there is nothing.
    pub(crate) wait: bool,
    /// Closed by whoever does not wait any more.
    pub(crate) reply: oneshot::Sender<Result<Delivery, ToolError>>,
}

/// An item that is handed out.
#[derive(Debug, Clone)]
pub(crate) struct Delivered<T> {
    pub(crate) item: T,
    /// True when the item may have been handed out before.
    pub(crate) redelivered: bool,
}

/// Items that are handed out until it is known whether they arrived.
#[derive(Default)]
pub(crate) struct Delivery {
    pub(crate) messages: Vec<Delivered<Arc<Message>>>,
    pub(crate) results: Vec<Delivered<Arc<StoredResult>>>,
    /// Left for the next time.
    pub(crate) messages_left: usize,
    pub(crate) results_left: usize,
    /// Tasks whose results are to come.
    pub(crate) pending: usize,
    pub(crate) unavailable: Option<Unavailable>,
    /// None when nothing is handed out.
    pub(super) lease: Option<Lease>,
}

impl Delivery {
    /// Acknowledges its arrival. Dropped without this, it did not arrive.
    pub(crate) fn ack(mut self) {
        if let Some(lease) = &mut self.lease {
            lease.acked = true;
        }
    }
}

/// The lease of a delivery's items, which ends when it is dropped.
pub(super) struct Lease {
    pub(super) number: u64,
    pub(super) acked: bool,
    /// Told the number, and whether it was acknowledged.
    pub(super) end: Box<dyn Fn(u64, bool) + Send + Sync>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        (self.end)(self.number, self.acked);
    }
}

/// The delivery that is under way.
pub(super) struct InFlight {
    pub(super) number: u64,
    pub(super) messages: BTreeSet<MessageId>,
    /// Messages that assigned the tasks of its results.
    pub(super) results: BTreeSet<MessageId>,
}

/// A member's deliveries.
#[derive(Default)]
pub(super) struct Deliveries {
    requests: VecDeque<Request>,
    in_flight: Option<InFlight>,
    /// Items that may have been handed out before.
    before: HashSet<MessageId>,
}

impl Deliveries {
    /// Queues a request, if there are fewer than `most`; otherwise refuses it.
    pub(super) fn join(&mut self, request: Request, most: usize, member: &str) {
        self.requests.retain(|request| !request.reply.is_closed());
        if self.requests.len() >= most {
            let error = refuse::too_many_receivers(member, self.requests.len());
            return drop(request.reply.send(Err(error)));
        }
        self.requests.push_back(request);
    }

    /// True when a receiver waits and no delivery is under way.
    pub(super) fn asked(&mut self) -> bool {
        self.requests.retain(|request| !request.reply.is_closed());
        self.in_flight.is_none() && !self.requests.is_empty()
    }

    /// The first request that can be answered: with something, or because it does not wait.
    pub(super) fn next(&mut self, any: bool) -> Option<Request> {
        let at = self.requests.iter().position(|request| any || !request.wait)?;
        self.requests.remove(at)
    }

    /// A delivery begins.
    pub(super) fn begin(&mut self, delivery: InFlight) {
        self.in_flight = Some(delivery);
    }

    /// True when an item is handed out, and it is not known yet whether it arrived.
    pub(super) fn under_way(&self, id: &MessageId) -> bool {
        let delivery = self.in_flight.as_ref();
        delivery.is_some_and(|it| it.messages.contains(id) || it.results.contains(id))
    }

    /// A delivery is over; `None` if that is not the present one, but one of an incarnation before.
    /// One that was not acknowledged is delivered again.
    pub(super) fn end(&mut self, number: u64, acked: bool) -> Option<InFlight> {
        let ended = self.in_flight.take_if(|delivery| delivery.number == number)?;
        if !acked {
            self.handed_out(ended.messages.iter().chain(&ended.results).copied());
        }
        Some(ended)
    }

    /// Marks items as handed out before.
    pub(super) fn handed_out(&mut self, ids: impl IntoIterator<Item = MessageId>) {
        self.before.extend(ids);
    }

    /// Forgets items that are gone.
    pub(super) fn gone<'i>(&mut self, ids: impl IntoIterator<Item = &'i MessageId>) {
        for id in ids {
            self.before.remove(id);
        }
    }

    /// An item as it is handed out.
    pub(super) fn of<T: Item>(&self, item: T) -> Delivered<T> {
        let redelivered = self.before.contains(&item.id());
        Delivered { item, redelivered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(deliveries: &mut Deliveries) -> oneshot::Receiver<Result<Delivery, ToolError>> {
        let (reply, answer) = oneshot::channel();
        deliveries.join(Request { limit: 9, wait: true, reply }, 2, "a");
        answer
    }

    #[test]
    fn there_is_one_at_a_time_and_what_comes_back_says_so() {
        let (mut deliveries, id) = (Deliveries::default(), MessageId::new());
        let begin = |deliveries: &mut Deliveries, number| {
            let messages = [id].into();
            deliveries.begin(InFlight { number, messages, results: BTreeSet::new() });
        };
        let (gone, one, other) =
            (request(&mut deliveries), request(&mut deliveries), request(&mut deliveries));
        let refused = other.blocking_recv().expect("an answer").err().expect("two are enough");
        assert_eq!(refused.code, "too_many_receivers");
        drop(gone);
        assert!(deliveries.asked() && deliveries.next(false).is_none(), "it waits");
        assert!(!deliveries.next(true).expect("one asks").reply.is_closed());
        drop(one);
        let _next = request(&mut deliveries);
        begin(&mut deliveries, 1);
        assert!(!deliveries.asked(), "one is under way");
        assert!(deliveries.end(0, true).is_none(), "of another incarnation");
        assert!(!deliveries.asked() && !deliveries.before.contains(&id));
        assert!(deliveries.end(1, false).is_some() && deliveries.asked());
        assert!(deliveries.before.contains(&id), "it was handed out");
        begin(&mut deliveries, 2);
        assert!(deliveries.end(1, true).is_none(), "it was over before");
        let ended = deliveries.end(2, true).expect("it is the present one");
        deliveries.gone(&ended.messages);
        assert!(deliveries.before.is_empty(), "nothing is kept of what is gone");
    }
}
