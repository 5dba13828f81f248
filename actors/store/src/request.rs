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
