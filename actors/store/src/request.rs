//! What callers ask of the writer.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{Error, NewEvent, Options, Seq, StreamId};

/// Answered after the commit; dropped when the writer stopped before it.
pub(crate) type Reply = oneshot::Sender<Result<Seq, Error>>;

pub(crate) enum Work {
    Append { stream: StreamId, records: Vec<Vec<u8>>, events: Vec<NewEvent> },
    Snapshot { stream: StreamId, upto: Seq, bytes: Vec<u8> },
    Forget { stream: StreamId },
    Publish { event: NewEvent },
    Close,
}

pub(crate) struct Request {
    pub(crate) work: Work,
    /// Nobody waits for an event published "later".
    pub(crate) reply: Option<Reply>,
    /// Its share of `queue_mb`, given back when it is answered.
    pub(crate) room: OwnedSemaphorePermit,
}

impl Work {
    /// The bytes it brings, for admission.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Work::Append { records, events, .. } => {
                records.iter().map(Vec::len).sum::<usize>()
                    + events.iter().map(NewEvent::weight).sum::<usize>()
            }
            Work::Snapshot { bytes, .. } => bytes.len(),
            Work::Publish { event } => event.weight(),
            Work::Forget { .. } | Work::Close => 0,
        }
    }

    /// Refuses what is above the limits before it takes room in the queue.
    pub(crate) fn check(&self, options: &Options) -> Result<(), Error> {
        let limit = |what, bytes, max_bytes| {
            if bytes > max_bytes {
                return Err(Error::TooLarge { what, bytes, max_bytes });
            }
            Ok(())
        };
        let record = options.max_record_bytes();
        match self {
            Work::Append { records, events, .. } => {
                if records.is_empty() {
                    return Err(Error::invalid("an append without records"));
                }
                for bytes in records {
                    limit("a record", bytes.len(), record)?;
                }
                for event in events {
                    limit("an event", event.weight(), record)?;
                }
            }
            Work::Snapshot { bytes, .. } => {
                limit("a snapshot", bytes.len(), options.max_snapshot_bytes())?;
            }
            Work::Publish { event } => limit("an event", event.weight(), record)?,
            Work::Forget { .. } | Work::Close => {}
        }
        limit("a request", self.weight(), options.queue_mb * 1024 * 1024)
    }
}
