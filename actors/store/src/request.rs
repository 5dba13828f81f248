//! Requests to the writer, with their limits and replies.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{Error, NewEvent, Options, Seq, StreamId};

/// Reply path of a request; answered after the commit, dropped when the writer stopped before it.
pub(crate) enum ReplyPath {
    /// Channel of a caller that waits.
    Waiter(oneshot::Sender<Result<Seq, Error>>),
    /// Callback to run.
    Then(OnceCallback),
}

impl ReplyPath {
    pub(crate) fn answer(self, answer: Result<Seq, Error>) {
        match self {
            // A caller that stopped waiting is no error.
            Self::Waiter(waiter) => drop(waiter.send(answer)),
            Self::Then(then) => then.answer(answer),
        }
    }
}

/// Callback for the outcome of an append that nobody waits for.
pub type AppendCallback = Box<dyn FnOnce(Result<Seq, Error>) + Send>;

/// Once-only callback, called with an error if there is no answer.
#[derive(Clone)]
pub(crate) struct OnceCallback(Arc<Once>);

struct Once(Mutex<Option<AppendCallback>>);

impl OnceCallback {
    pub(crate) fn new(done: AppendCallback) -> Self {
        Self(Arc::new(Once(Mutex::new(Some(done)))))
    }

    /// Calls the callback; has no effect the second time.
    pub(crate) fn answer(&self, answer: Result<Seq, Error>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }

    /// Takes the callback if it was not called yet.
    pub(crate) fn take(&self) -> Option<AppendCallback> {
        self.0.take()
    }
}

impl Once {
    fn take(&self) -> Option<AppendCallback> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        if let Some(done) = self.take() {
            done(Err(Error::Closed));
        }
    }
}

/// Maker of an event's bytes, run by the writer with the time of the commit.
pub(crate) type EventMaker = Box<dyn FnOnce(DateTime<Utc>) -> Vec<u8> + Send>;

/// Records and events for one commit.
#[derive(Debug, Clone)]
pub struct Append {
    /// Stream to append to.
    pub stream: StreamId,
    /// Records, at least one.
    pub records: Vec<Vec<u8>>,
    /// Events published with the records.
    pub events: Vec<NewEvent>,
}

pub(crate) enum WriteOperation {
    Append {
        stream: StreamId,
        records: Vec<Vec<u8>>,
        events: Vec<NewEvent>,
    },
    Snapshot {
        stream: StreamId,
        upto: Seq,
        bytes: Vec<u8>,
    },
    Forget {
        stream: StreamId,
    },
    Publish {
        event: NewEvent,
    },
    /// An event that the writer makes, of about this many bytes.
    PublishMade {
        bytes: usize,
        make: EventMaker,
    },
    /// No change; answered when everything queued before it is done.
    Fence,
    Close,
}

pub(crate) struct WriteRequest {
    pub(crate) work: WriteOperation,
    /// Reply path; `None` for an event published "later".
    pub(crate) reply: Option<ReplyPath>,
    /// Share of `queue_mb`, released when the request is answered.
    pub(crate) room: OwnedSemaphorePermit,
}

impl WriteOperation {
    /// Size of the request in bytes, for admission.
    pub(crate) fn weight(&self) -> usize {
        match self {
            WriteOperation::Append { records, events, .. } => weight(records, events),
            WriteOperation::Snapshot { bytes, .. } => bytes.len(),
            WriteOperation::Publish { event } => event.weight(),
            WriteOperation::PublishMade { bytes, .. } => *bytes,
            WriteOperation::Forget { .. } | WriteOperation::Fence | WriteOperation::Close => 0,
        }
    }

    /// Refuses what is above the limits before it takes room in the queue.
    pub(crate) fn check(&self, options: &Options) -> Result<(), Error> {
        let record = options.max_record_bytes();
        match self {
            WriteOperation::Append { records, events, .. } => {
                return check(records, events, options);
            }
            WriteOperation::Snapshot { bytes, .. } => {
                limit("a snapshot", bytes.len(), options.max_snapshot_bytes())?;
            }
            WriteOperation::Publish { .. } | WriteOperation::PublishMade { .. } => {
                limit("an event", self.weight(), record)?;
            }
            WriteOperation::Forget { .. } | WriteOperation::Fence | WriteOperation::Close => {}
        }
        limit("a request", self.weight(), options.queue_mb * 1024 * 1024)
    }
}

impl Append {
    /// Checks the limits as [`WriteOperation::check`] does.
    pub(crate) fn check(&self, options: &Options) -> Result<(), Error> {
        check(&self.records, &self.events, options)
    }
}

fn check(records: &[Vec<u8>], events: &[NewEvent], options: &Options) -> Result<(), Error> {
    let record = options.max_record_bytes();
    if records.is_empty() {
        return Err(Error::invalid("an append without records"));
    }
    for bytes in records {
        limit("a record", bytes.len(), record)?;
    }
    for event in events {
        limit("an event", event.weight(), record)?;
    }
    limit("a request", weight(records, events), options.queue_mb * 1024 * 1024)
}

fn limit(what: &'static str, bytes: usize, max_bytes: usize) -> Result<(), Error> {
    if bytes > max_bytes {
        return Err(Error::TooLarge { what, bytes, max_bytes });
    }
    Ok(())
}

fn weight(records: &[Vec<u8>], events: &[NewEvent]) -> usize {
    let records: usize = records.iter().map(Vec::len).sum();
    records + events.iter().map(NewEvent::weight).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { max_record_kb: 2, max_snapshot_kb: 3, queue_mb: 1, ..Options::default() }
    }

    fn stream() -> StreamId {
        StreamId::parse("a/b").unwrap()
    }

    fn event(weight: usize) -> NewEvent {
        let event = |text: String| NewEvent { kind: text, subject: String::new(), data: 1.into() };
        event("k".repeat(weight - event(String::new()).weight()))
    }

    fn append(records: Vec<Vec<u8>>, events: Vec<NewEvent>) -> WriteOperation {
        WriteOperation::Append { stream: stream(), records, events }
    }

    /// Bytes and limit of what is refused as too large.
    fn refused(work: &WriteOperation) -> Option<(&'static str, usize, usize)> {
        match work.check(&options()) {
            Ok(()) => None,
            Err(Error::TooLarge { what, bytes, max_bytes }) => Some((what, bytes, max_bytes)),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_request_is_refused_one_byte_above_its_limit() {
        let (record, snapshot, all) = (2 << 10, 3 << 10, 1 << 20);
        let bytes = |bytes: usize| vec![0; bytes];
        let save = |bytes| WriteOperation::Snapshot { stream: stream(), upto: Seq::FIRST, bytes };
        let publish = |weight| WriteOperation::Publish { event: event(weight) };
        let made = |bytes| WriteOperation::PublishMade { bytes, make: Box::new(|_| Vec::new()) };
        for (fits, too_large, what, limit) in [
            (
                append(vec![bytes(record)], vec![]),
                append(vec![bytes(1), bytes(record + 1)], vec![]),
                "a record",
                record,
            ),
            (
                append(vec![bytes(1)], vec![event(record)]),
                append(vec![bytes(1)], vec![event(record + 1)]),
                "an event",
                record,
            ),
            (save(bytes(snapshot)), save(bytes(snapshot + 1)), "a snapshot", snapshot),
            (publish(record), publish(record + 1), "an event", record),
            (made(record), made(record + 1), "an event", record),
        ] {
            assert_eq!(refused(&fits), None, "{what}");
            assert_eq!(refused(&too_large), Some((what, limit + 1, limit)));
        }
        let many = |more: usize| {
            let records = vec![bytes(record); 511].into_iter().chain([bytes(record - 100 + more)]);
            append(records.collect(), vec![event(100)])
        };
        assert_eq!((many(0).weight(), refused(&many(0))), (all, None));
        assert_eq!(refused(&many(1)), Some(("a request", all + 1, all)));
        assert!(matches!(
            append(vec![], vec![event(100)]).check(&options()),
            Err(Error::Invalid { .. })
        ));
        let given = Append { stream: stream(), records: vec![bytes(record + 1)], events: vec![] };
        assert!(given.check(&options()).is_err());
        for free in [
            WriteOperation::Forget { stream: stream() },
            WriteOperation::Fence,
            WriteOperation::Close,
        ] {
            assert_eq!((free.weight(), refused(&free)), (0, None));
        }
    }

    #[test]
    fn a_callback_is_called_once_and_hears_the_end() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let callback = || {
            let heard = heard.clone();
            OnceCallback::new(Box::new(move |answer| heard.lock().unwrap().push(answer.ok())))
        };
        let twice = callback();
        ReplyPath::Then(twice.clone()).answer(Ok(Seq::FIRST));
        twice.answer(Ok(Seq::ZERO));
        drop(twice);
        drop(callback());
        assert!(callback().take().is_some());
        assert_eq!(*heard.lock().unwrap(), [Some(Seq::FIRST), None]);
    }
}
