//! Bounded queues from the handles to the writer: one for requests whose callers wait, one for
//! events that nobody waits for.
//!
//! The second queue exists so that an event published "later" costs its publisher no wake-up of the
//! writer and the disk no commit of its own. The first such event wakes the writer, which then
//! gives others [`GATHER`] to join. A request whose caller waits ends that time at once and takes
//! them along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use flume::{RecvTimeoutError, TryRecvError, TrySendError};

use crate::request::WriteRequest;

/// Time that events nobody waits for may wait for each other.
const GATHER: Duration = Duration::from_millis(10);

enum Arrival {
    Asked(WriteRequest),
    /// Wake-up: the second queue has something.
    Nudge,
}

/// Next task of the writer.
pub(crate) enum WriterWake {
    /// A request whose caller waits; there may be events published later as well.
    Asked(WriteRequest),
    /// There may be events published later.
    Look,
    /// Every handle is gone.
    Ended,
}

/// Sending end, for the handles.
pub(crate) struct QueueSender {
    asked: flume::Sender<Arrival>,
    later: flume::Sender<WriteRequest>,
    nudged: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

/// Receiving end, for the writer.
pub(crate) struct QueueReceiver {
    asked: flume::Receiver<Arrival>,
    later: flume::Receiver<WriteRequest>,
    nudged: Arc<AtomicBool>,
    /// Set before the remaining requests are dropped.
    ended: Arc<AtomicBool>,
    /// A wake-up was taken from the queue and not followed yet.
    look: bool,
}

/// Makes two queues of at most `capacity` requests each.
pub(crate) fn bounded(capacity: usize) -> (QueueSender, QueueReceiver) {
    let (asked, asked_end) = flume::bounded(capacity);
    let (later, later_end) = flume::bounded(capacity);
    let (nudged, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let inlet = QueueSender { asked, later, nudged: nudged.clone(), ended: ended.clone() };
    (inlet, QueueReceiver { asked: asked_end, later: later_end, nudged, ended, look: false })
}

impl QueueSender {
    /// Queues a request whose caller waits. False when the writer has ended.
    pub(crate) async fn ask(&self, request: WriteRequest) -> bool {
        self.asked.send_async(Arrival::Asked(request)).await.is_ok()
    }

    /// Queues a request if there is room at once; returns it otherwise.
    pub(crate) fn try_ask(&self, request: WriteRequest) -> Option<WriteRequest> {
        match self.asked.try_send(Arrival::Asked(request)).map_err(TrySendError::into_inner) {
            Err(Arrival::Asked(request)) => Some(request),
            Ok(()) | Err(Arrival::Nudge) => None,
        }
    }

    /// True once the writer accepts nothing more. Requests queued before this was false are handled
    /// or dropped; those queued after may stay in the queue.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Queues a request that nobody waits for. False if it was dropped: the queue is full, or the
    /// writer has ended.
    pub(crate) fn tell(&self, request: WriteRequest) -> bool {
        if self.later.try_send(request).is_err() {
            return false;
        }
        // A full queue needs no wake-up: the writer looks before each batch.
        if !self.nudged.swap(true, SeqCst) && self.asked.try_send(Arrival::Nudge).is_err() {
            self.nudged.store(false, SeqCst);
        }
        true
    }

    /// Number of requests in both queues.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + self.later.len()
    }
}

impl QueueReceiver {
    /// Waits until there is something to do, at most `idle`.
    pub(crate) fn wait(&mut self, idle: Duration) -> WriterWake {
        loop {
            let patience = if self.look { GATHER } else { idle };
            match self.asked.recv_timeout(patience) {
                Ok(Arrival::Asked(request)) => return WriterWake::Asked(request),
                Ok(Arrival::Nudge) => self.look = true,
                Err(RecvTimeoutError::Timeout) => return WriterWake::Look,
                Err(RecvTimeoutError::Disconnected) => return WriterWake::Ended,
            }
        }
    }

    /// Takes all events published later, in their order.
    pub(crate) fn later(&mut self) -> Vec<WriteRequest> {
        // Order matters: an event that is missed here wakes the writer again.
        self.look = false;
        self.nudged.store(false, SeqCst);
        self.later.drain().collect()
    }

    /// Takes the next request whose caller waits, waiting for one until `patience` if given.
    pub(crate) fn next(&mut self, patience: Option<Instant>) -> Option<WriteRequest> {
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

    /// Number of requests whose callers wait.
    pub(crate) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Closes the queues. Remaining requests are dropped now, not with the last handle.
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
    use crate::{NewEvent, request::WriteOperation};

    fn event(kind: &str) -> WriteRequest {
        let (kind, subject) = (kind.to_owned(), String::new());
        let work = WriteOperation::Publish { event: NewEvent { kind, subject, data: 1.into() } };
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        WriteRequest { work, reply: None, room }
    }

    fn kinds(requests: Vec<WriteRequest>) -> Vec<String> {
        let kind = |request: WriteRequest| match request.work {
            WriteOperation::Publish { event } => event.kind,
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
        assert!(matches!(intake.wait(Duration::ZERO), WriterWake::Look));
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
        // Returns at once although the wake-up is gone from the queue, because it was remembered.
        assert!(matches!(intake.wait(Duration::from_secs(3600)), WriterWake::Look));
        assert_eq!(kinds(intake.later()), ["told"]);
    }

    #[tokio::test]
    async fn a_full_queue_takes_no_nudge_and_loses_none_after_it() {
        let (inlet, mut intake) = bounded(1);
        assert!(inlet.ask(event("asked")).await);
        assert!(inlet.tell(event("told")));
        assert!(!inlet.tell(event("too many")));
        assert!(matches!(intake.wait(Duration::ZERO), WriterWake::Asked(_)));
        assert_eq!(kinds(intake.later()), ["told"]);
        assert!(inlet.tell(event("next")));
        assert_eq!(intake.asked(), 1);
        drop(inlet);
        assert!(matches!(intake.wait(Duration::from_secs(3600)), WriterWake::Ended));
        assert_eq!(kinds(intake.later()), ["next"]);
    }
}
