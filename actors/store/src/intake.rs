//! The way from the handles to the writer: one queue for those who wait for an
//! answer, one for events that nobody waits for.
//!
//! The second exists so that an event published "later" costs its publisher no
//! wake-up of the writer and the disk no commit of its own. The first of them
//! nudges the writer, which then gives the others [`GATHER`] to join. Whoever
//! waits for an answer ends that time at once and takes them along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use flume::{RecvTimeoutError, TryRecvError, TrySendError};

use crate::request::Request;

/// How long events that nobody waits for may wait for each other.
const GATHER: Duration = Duration::from_millis(10);

enum Arrival {
    Asked(Request),
    /// There is something in the second queue.
    Nudge,
}

/// What the writer is to do now.
pub(crate) enum Call {
    /// Someone asks; there may be events published later as well.
    Asked(Request),
    /// There may be events published later.
    Look,
    /// Every handle is gone.
    Ended,
}

/// The handles' end.
pub(crate) struct Inlet {
    asked: flume::Sender<Arrival>,
    later: flume::Sender<Request>,
    nudged: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

/// The writer's end.
pub(crate) struct Intake {
    asked: flume::Receiver<Arrival>,
    later: flume::Receiver<Request>,
    nudged: Arc<AtomicBool>,
    /// Set before what is left is dropped.
    ended: Arc<AtomicBool>,
    /// A nudge was taken out and not followed yet.
    look: bool,
}

/// Two queues of at most `capacity` requests each.
pub(crate) fn bounded(capacity: usize) -> (Inlet, Intake) {
    let (asked, asked_end) = flume::bounded(capacity);
    let (later, later_end) = flume::bounded(capacity);
    let (nudged, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let inlet = Inlet { asked, later, nudged: nudged.clone(), ended: ended.clone() };
    (inlet, Intake { asked: asked_end, later: later_end, nudged, ended, look: false })
}

impl Inlet {
    /// Queues a request whose caller waits. False when the writer has ended.
    pub(crate) async fn ask(&self, request: Request) -> bool {
        self.asked.send_async(Arrival::Asked(request)).await.is_ok()
    }

    /// Queues a request if there is room at once; gives it back otherwise.
    pub(crate) fn try_ask(&self, request: Request) -> Option<Request> {
        match self.asked.try_send(Arrival::Asked(request)).map_err(TrySendError::into_inner) {
            Err(Arrival::Asked(request)) => Some(request),
            Ok(()) | Err(Arrival::Nudge) => None,
        }
    }

    /// Whether the writer takes nothing any more: what was queued before this said no is looked at
    /// or dropped, what was queued after may lie there.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Queues a request that nobody waits for. False when it was dropped: the
    /// queue is full, or the writer has ended.
    pub(crate) fn tell(&self, request: Request) -> bool {
        if self.later.try_send(request).is_err() {
            return false;
        }
        // A full queue needs no nudge: the writer looks before each batch.
        if !self.nudged.swap(true, SeqCst) && self.asked.try_send(Arrival::Nudge).is_err() {
            self.nudged.store(false, SeqCst);
        }
        true
    }

    /// Requests in both queues.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + self.later.len()
    }
}

impl Intake {
    /// Waits until there is something to do, at most `idle`.
    pub(crate) fn wait(&mut self, idle: Duration) -> Call {
        loop {
            let patience = if self.look { GATHER } else { idle };
            match self.asked.recv_timeout(patience) {
                Ok(Arrival::Asked(request)) => return Call::Asked(request),
                Ok(Arrival::Nudge) => self.look = true,
                Err(RecvTimeoutError::Timeout) => return Call::Look,
                Err(RecvTimeoutError::Disconnected) => return Call::Ended,
            }
        }
    }

    /// Takes all events published later, in their order.
    pub(crate) fn later(&mut self) -> Vec<Request> {
        // In this order: an event that is missed here nudges again.
        self.look = false;
        self.nudged.store(false, SeqCst);
        self.later.drain().collect()
    }

    /// The next one who asks, waiting for it until `patience` if there is one.
    pub(crate) fn next(&mut self, patience: Option<Instant>) -> Option<Request> {
        loop {
            let arrival = match (self.asked.try_recv(), patience) {
                (Ok(arrival), _) => arrival,
                (Err(TryRecvError::Empty), Some(until)) => self.asked.recv_deadline(until).ok()?,
                (Err(_), _) => return None,
            };
            match arrival {
                Arrival::Asked(request) => return Some(request),
                Arrival::Nudge => self.look = true,
            }
        }
    }

    /// How many ask.
    pub(crate) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Takes nothing any more. What is left is dropped now, not with the last
    /// handle.
    pub(crate) fn close(self) {
        self.ended.store(true, SeqCst);
        drop(self.asked.drain());
        drop(self.later.drain());
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{NewEvent, request::Work};

    fn event(kind: &str) -> Request {
        let (kind, subject) = (kind.to_owned(), String::new());
        let work = Work::Publish { event: NewEvent { kind, subject, data: 1.into() } };
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Request { work, reply: None, room }
    }

    fn kinds(requests: Vec<Request>) -> Vec<String> {
        let kind = |request: Request| match request.work {
            Work::Publish { event } => event.kind,
            _ => panic!("only events were queued"),
        };
        requests.into_iter().map(kind).collect()
    }

    #[test]
    fn events_told_together_nudge_once_and_come_in_their_order() {
        let (inlet, mut intake) = bounded(8);
        for kind in ["a", "b", "c"] {
            assert!(inlet.tell(event(kind)));
        }
        assert_eq!(intake.asked(), 1);
        assert!(matches!(intake.wait(Duration::ZERO), Call::Look));
        assert_eq!(kinds(intake.later()), ["a", "b", "c"]);
        assert!(inlet.tell(event("d")));
        assert_eq!(intake.asked(), 1, "the next one nudges again");
    }

    #[tokio::test]
    async fn a_nudge_seen_while_callers_are_gathered_is_followed() {
        let (inlet, mut intake) = bounded(8);
        assert!(intake.later().is_empty());
        assert!(inlet.tell(event("told")));
        assert!(inlet.ask(event("asked")).await);
        let asked = intake.next(None).expect("it was asked");
        assert_eq!(kinds(vec![asked]), ["asked"]);
        // Not after an hour: the nudge is gone from the queue and remembered.
        assert!(matches!(intake.wait(Duration::from_secs(3600)), Call::Look));
        assert_eq!(kinds(intake.later()), ["told"]);
    }

    #[tokio::test]
    async fn a_full_queue_takes_no_nudge_and_loses_none_after_it() {
        let (inlet, mut intake) = bounded(1);
        assert!(inlet.ask(event("asked")).await);
        assert!(inlet.tell(event("told")));
        assert!(!inlet.tell(event("too many")));
        assert!(matches!(intake.wait(Duration::ZERO), Call::Asked(_)));
        assert_eq!(kinds(intake.later()), ["told"]);
        assert!(inlet.tell(event("next")));
        assert_eq!(intake.asked(), 1);
        drop(inlet);
        assert!(matches!(intake.wait(Duration::from_secs(3600)), Call::Ended));
        assert_eq!(kinds(intake.later()), ["next"]);
    }
}
