//! Event-sourced log with group commit: the records of one entity, and the state they add up to.
//!
//! ```text
//! decide ─▶ decided ─▶ waits ─▶ written, many together ─▶ durable ─▶ answered
//!                                        └─ the journal stopped: ended
//! ```
//! Each decision is made on the state with everything decided before it, so no two decisions
//! contradict each other; it is answered, and visible in [`Log::state`], once it is on the disk.
//! Decisions made during a write go together in the next one (group commit). The same task folds a
//! long stream into a snapshot between two writes, so a snapshot's state and position belong to the
//! same moment.
//!
//! Every write has a known outcome: only a journal that stopped fails a write, and the daemon ends
//! with it. The number of waiting decisions is bounded, and the size of one by the journal's
//! limits.

mod load;
mod write;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex},
};

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::lock;
use hivekeep_store::{Append, Journal, NewEvent, Seq, StreamId};
use tokio::sync::{oneshot, watch};
use write::Answer;

pub use load::{
    EncodedRecords, Loaded, LogRecord, LogSet, Streams, load, load_all, read, read_all,
    read_behind, read_encoded, read_one, read_records,
};
pub use write::LogError;

/// Maximum number of decisions that wait to be written; one more is refused as retryable.
const MOST_WAITING: usize = 1024;

/// State that the records of one entity add up to.
pub trait Sourced: Clone + Send + Sync + 'static {
    /// First part of the streams' names: `KIND/ID`. Never changes.
    const KIND: &'static str;
    /// Number of records after which the stream is folded into a snapshot; needs [`Self::fold`].
    const FOLD_EVERY: usize = usize::MAX;
    /// Size of one piece in bytes, for a kind whose records may exceed the journal's limit: each is
    /// written as pieces in one commit. A kind never changes between `None` and `Some`; the size
    /// may change.
    const PIECE_BYTES: Option<usize> = None;
    /// True if clones share what is large: once all is written it is in memory once, not once more for the durable
    /// state.
    const SHARED: bool = false;
    /// Type of the records. Every record ever written stays readable.
    type Record: LogRecord;

    /// Makes the state from a first record; returns a record that cannot be the first.
    ///
    /// # Errors
    /// The rejected record.
    fn begin(record: Self::Record) -> Result<Self, Self::Record>;

    /// Applies a record; returns one that cannot follow.
    ///
    /// # Errors
    /// The rejected record; the state is unchanged.
    fn apply(&mut self, record: Self::Record) -> Result<(), Self::Record>;

    /// True if a stream with this many records after its snapshot is to be folded.
    fn fold_due(&self, unfolded: usize) -> bool {
        unfolded >= Self::FOLD_EVERY
    }

    /// Encodes the state as a snapshot; `None` for a kind that is never folded.
    fn fold(&self) -> Option<Vec<u8>> {
        None
    }

    /// Decodes a snapshot.
    ///
    /// # Errors
    /// Reason, for a snapshot that makes no sense.
    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let _ = snapshot;
        Err(format!("a `{}` has no snapshots", Self::KIND))
    }
}

/// Name of an entity's stream.
///
/// # Errors
/// Fails when the id has characters other than letters, digits, `_`, `-` and `.`.
pub fn stream<S: Sourced>(id: impl fmt::Display) -> Result<StreamId, hivekeep_store::Error> {
    StreamId::new(S::KIND, &id.to_string())
}

/// Records to write in sequence, and events to publish in the same commit.
#[derive(Debug)]
pub struct Decision<R> {
    /// In order.
    records: Vec<R>,
    events: Vec<NewEvent>,
}

impl<R> Decision<R> {
    /// Makes a decision of one record.
    pub fn record(record: R) -> Self {
        Self { records: vec![record], events: Vec::new() }
    }

    /// Nothing to write. Answered when everything decided before it is durable: an answer that rests
    /// on a decision is not given before that is on the disk.
    pub fn nothing() -> Self {
        Self { records: Vec::new(), events: Vec::new() }
    }

    /// Another record behind it.
    #[must_use]
    pub fn and(mut self, record: R) -> Self {
        self.records.push(record);
        self
    }

    /// Adds an event to publish in the same commit.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }
}

/// Log of one entity. Clones share it.
pub struct Log<S: Sourced>(Arc<Inner<S>>);

impl<S: Sourced> Clone for Log<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Sourced> fmt::Debug for Log<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({})", self.0.stream)
    }
}

struct Inner<S: Sourced> {
    journal: Journal,
    stream: StreamId,
    held: Mutex<Held<S>>,
    /// True while nothing is being written or waits to be.
    idle: watch::Sender<bool>,
}

struct Held<S: Sourced> {
    /// State with everything on the disk.
    durable: Option<S>,
    /// State with everything decided.
    decided: Option<S>,
    upto: Seq,
    /// Number of records since the last snapshot, or since the last attempt at one.
    unfolded: usize,
    waiting: VecDeque<Entry<S>>,
    writing: bool,
    /// Reason why nothing can be decided any more.
    ended: Option<String>,
}

struct Entry<S: Sourced> {
    records: Vec<S::Record>,
    /// Encoded records, and events.
    append: Append,
    answer: Answer,
}

impl<S: Sourced> Log<S> {
    /// Opens the log of an entity, after everything that was ever queued for it.
    ///
    /// # Errors
    /// Fails when it cannot be read.
    pub async fn open(journal: Journal, stream: StreamId) -> Result<Self, LogError> {
        let loaded = read(&journal, &stream).await?;
        Ok(Self::of(journal, stream, loaded))
    }

    /// The log of an entity that was just loaded, or of one that is not there yet. Nobody else has
    /// written to its stream since. A stream that is to be folded, for it was not before the daemon
    /// ended, is folded now: legal in a runtime.
    pub fn of(journal: Journal, stream: StreamId, loaded: Option<Loaded<S>>) -> Self {
        let (state, upto, unfolded) = match loaded {
            Some(Loaded { state, upto, unfolded }) => (Some(state), upto, unfolded),
            None => (None, Seq::ZERO, 0),
        };
        let mut held = Held {
            durable: state.clone(),
            decided: state,
            upto,
            unfolded,
            waiting: VecDeque::new(),
            writing: false,
            ended: None,
        };
        let due = held.fold_due();
        held.writing = due;
        let idle = watch::channel(!due).0;
        let log = Self(Arc::new(Inner { journal, stream, held: Mutex::new(held), idle }));
        if due {
            tokio::spawn(write::all(log.0.clone()).boxed());
        }
        log
    }

    /// Copy of the durable state; `None` before the first record.
    pub fn state(&self) -> Option<S> {
        lock(&self.0.held).durable.clone()
    }

    /// Reads the durable state without a copy. `look` runs under the log's lock: it must be short
    /// and must not call this log.
    pub fn view<R>(&self, look: impl FnOnce(Option<&S>) -> R) -> R {
        look(lock(&self.0.held).durable.as_ref())
    }

    /// Reads the state with everything decided, and the durable one beside it, as [`Self::view`]
    /// does.
    pub fn views<R>(&self, look: impl FnOnce(Option<&S>, Option<&S>) -> R) -> R {
        let held = lock(&self.0.held);
        look(held.decided.as_ref(), held.durable.as_ref())
    }

    /// Waits until everything decided so far is durable.
    ///
    /// # Errors
    /// As [`Self::decide_then`].
    pub async fn settled(&self) -> Result<(), LogError> {
        self.decide::<LogError>(|_| Ok(Decision::nothing()))?.await
    }

    /// Waits until nothing is being written or waits to be, or the log has ended.
    pub async fn idle(&self) {
        self.0.idle().await;
    }

    /// Why nothing can be decided any more: the journal stopped, or the entity was forgotten.
    pub fn ended(&self) -> Option<String> {
        lock(&self.0.held).ended.clone()
    }

    /// Decides at once, and returns a future that completes when the decision is durable. Dropping
    /// the future cancels nothing. All records are decided or, after an error, none.
    ///
    /// # Errors
    /// See [`Self::decide_then`].
    pub fn decide<E: From<LogError>>(
        &self,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, E>,
    ) -> Result<BoxFuture<'static, Result<(), LogError>>, E> {
        let (answer, answered) = oneshot::channel();
        // Ignored if the caller is gone.
        self.decide_then(decide, move |outcome| drop(answer.send(outcome)))?;
        let stream = self.0.stream.clone();
        Ok(async move { answered.await.unwrap_or_else(|_| Err(write::unwritten(stream))) }.boxed())
    }

    /// Decides at once, and calls `then` when the decision is durable or the log has ended. Calls
    /// are made in the order of the decisions; `then` must be short and must not wait.
    ///
    /// # Errors
    /// Refusal of `decide`; [`LogError::Ended`], [`LogError::Busy`], [`LogError::Journal`] for what
    /// is too large, [`LogError::Defect`] for a record that does not follow. Nothing is decided
    /// then and `then` is not called.
    pub fn decide_then<E: From<LogError>>(
        &self,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, E>,
        then: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Result<(), E> {
        let stream = &self.0.stream;
        let begin = {
            let mut held = lock(&self.0.held);
            if let Some(why) = held.ended.clone() {
                return Err(LogError::Ended { stream: stream.clone(), why }.into());
            }
            if held.waiting.len() >= MOST_WAITING {
                return Err(LogError::Busy { stream: stream.clone() }.into());
            }
            let Decision { records, events } = decide(held.decided.as_ref())?;
            let append = self.0.append(&records, events)?;
            held.follow(&records).map_err(|record| LogError::Defect {
                stream: stream.clone(),
                what: format!("`{}` does not follow", record.kind()),
            })?;
            let answer = Answer::new(stream.clone(), then);
            held.waiting.push_back(Entry { records, append, answer });
            self.0.idle.send_replace(false);
            !std::mem::replace(&mut held.writing, true)
        };
        if begin {
            tokio::spawn(write::all(self.0.clone()).boxed());
        }
        Ok(())
    }

    /// The error of a decision whose outcome was lost with the log's writer.
    pub(crate) fn unwritten(&self) -> LogError {
        write::unwritten(self.0.stream.clone())
    }

    /// Removes all records, behind everything decided; nothing can be decided after it. Once begun
    /// it is done, whether or not anybody waits for it. Then [`Self::state`] is `None`.
    ///
    /// # Errors
    /// Fails when they could not be removed; the log has ended all the same, and reopening it shows
    /// what is there.
    pub async fn forget(&self) -> Result<(), LogError> {
        let log = self.0.clone();
        let stream = log.stream.clone();
        let removed = tokio::spawn(async move { log.forget().await }.boxed()).await;
        removed.unwrap_or_else(|panic| Err(LogError::Defect { stream, what: panic.to_string() }))
    }
}

impl<S: Sourced> Held<S> {
    /// Applies all of a decision's records or none of them.
    fn follow(&mut self, records: &[S::Record]) -> Result<(), S::Record> {
        match records {
            // A wait for what was decided before copies no state.
            [] => return Ok(()),
            // A single record that does not follow leaves the state unchanged.
            [record] => return follow(&mut self.decided, record.clone()),
            _ => {}
        }
        let mut decided = self.decided.clone();
        records.iter().try_for_each(|record| follow(&mut decided, record.clone()))?;
        self.decided = decided;
        Ok(())
    }

    fn fold_due(&self) -> bool {
        self.durable.as_ref().is_some_and(|state| state.fold_due(self.unfolded))
    }

    /// Ends the log. When it has ended already, that stays the reason and is given.
    fn end(&mut self, why: &str) -> Option<String> {
        let before = self.ended.clone();
        self.ended.get_or_insert_with(|| why.to_owned());
        before
    }
}

impl<S: Sourced> Inner<S> {
    fn failed(&self, source: hivekeep_store::Error) -> LogError {
        LogError::Journal { stream: self.stream.clone(), source }
    }

    /// Encodes an append for the journal, within its limits.
    fn append(&self, records: &[S::Record], events: Vec<NewEvent>) -> Result<Append, LogError> {
        let stream = self.stream.clone();
        let defect = |what| LogError::Defect { stream: stream.clone(), what };
        let encoded: Result<Vec<_>, _> = records.iter().map(LogRecord::encode).collect();
        let mut records = encoded.map_err(defect)?;
        if let Some(piece_bytes) = S::PIECE_BYTES {
            records = records.iter().flat_map(|whole| load::pieces(whole, piece_bytes)).collect();
        }
        let append = Append { stream, records, events };
        if !append.records.is_empty() || !append.events.is_empty() {
            self.journal.check(&append).map_err(|error| self.failed(error))?;
        }
        Ok(append)
    }

    async fn idle(&self) {
        // The sender is this log's.
        let _all_written = self.idle.subscribe().wait_for(|idle| *idle).await.is_ok();
    }

    async fn forget(&self) -> Result<(), LogError> {
        if let Some(why) = lock(&self.held).end("it is removed") {
            return Err(LogError::Ended { stream: self.stream.clone(), why });
        }
        self.idle().await;
        self.journal.forget(&self.stream).await.map_err(|error| self.failed(error))?;
        let mut held = lock(&self.held);
        (held.durable, held.decided) = (None, None);
        Ok(())
    }
}

/// Applies a record to a state that may not have begun.
fn follow<S: Sourced>(state: &mut Option<S>, record: S::Record) -> Result<(), S::Record> {
    match state {
        Some(state) => state.apply(record),
        None => S::begin(record).map(|begun| *state = Some(begun)),
    }
}

#[cfg(test)]
mod tests;
