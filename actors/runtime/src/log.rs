//! An event-sourced log: the records of one entity, and the state they add up to.
//!
//! ```text
//! decide ─▶ decided ─▶ waits ─▶ written, many together ─▶ durable ─▶ answered
//!                                        └─ the journal stopped: ended
//! ```
//! A decision is made of the state with everything decided before it, so two of them never
//! contradict each other; it is answered, and seen by [`Log::state`], when it is on the disk. What
//! comes while something is being written goes together in the next write (group commit). A long
//! stream is folded by the same task between two writes, so a snapshot's state and its position are
//! of one moment.
//!
//! Whatever is written has an outcome: only a journal that stopped fails a write, and the daemon ends
//! with it. What waits is bounded in number, and one decision by the journal's limits.

mod answer;
mod error;
mod load;
mod open;
mod record;
mod write;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use answer::Answer;
use futures::future::{BoxFuture, FutureExt};
use hivekeep_store::{Append, Journal, NewEvent, Seq, StreamId};
use tokio::sync::{oneshot, watch};

pub use error::LogError;
pub use load::{Loaded, Streams, load, load_all, read, read_all};
pub use open::Logs;
pub use record::LogRecord;

/// Decisions that wait to be written; for one more the caller is told to come again.
const MOST_WAITING: usize = 1024;

/// The state that the records of one entity add up to.
pub trait Sourced: Clone + Send + Sync + 'static {
    /// The first part of its streams' names: `KIND/ID`. Never changes.
    const KIND: &'static str;
    /// Records after which the stream is folded into a snapshot, which needs [`Self::fold`].
    const FOLD_EVERY: usize = usize::MAX;
    /// Bytes of one piece, for a kind whose records may be larger than the journal takes: each is
    /// written as pieces in one commit. Whether it is set never changes, the size may.
    const PIECE_BYTES: Option<usize> = None;
    /// One record. What was written once is readable for ever.
    type Record: LogRecord;

    /// The state that a first record begins; gives back one that cannot be the first.
    ///
    /// # Errors
    /// The record.
    fn begin(record: Self::Record) -> Result<Self, Self::Record>;

    /// Applies a record; gives back one that cannot follow.
    ///
    /// # Errors
    /// The record; the state is as it was.
    fn apply(&mut self, record: Self::Record) -> Result<(), Self::Record>;

    /// Whether the stream is to be folded now that it has so many records behind its snapshot.
    fn fold_due(&self, unfolded: usize) -> bool {
        unfolded >= Self::FOLD_EVERY
    }

    /// The state as a snapshot; `None` for a kind that is never folded.
    fn fold(&self) -> Option<Vec<u8>> {
        None
    }

    /// A snapshot read back.
    ///
    /// # Errors
    /// In words, when it makes no sense.
    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let _ = snapshot;
        Err(format!("a `{}` has no snapshots", Self::KIND))
    }
}

/// The stream of an entity.
///
/// # Errors
/// When the id has other characters than letters, digits, `_`, `-` and `.`.
pub fn stream<S: Sourced>(id: impl fmt::Display) -> Result<StreamId, hivekeep_store::Error> {
    StreamId::new(S::KIND, &id.to_string())
}

/// What is decided: records that follow each other, and events told in the same commit.
#[derive(Debug)]
pub struct Decision<R> {
    /// In order.
    records: Vec<R>,
    events: Vec<NewEvent>,
}

impl<R> Decision<R> {
    /// One record.
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

    /// Tells an event in the same commit.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }
}

/// The log of one entity. Clones are one log.
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
    /// Whether nothing is being written or waits to be.
    idle: watch::Sender<bool>,
}

struct Held<S: Sourced> {
    /// With everything on the disk.
    durable: Option<S>,
    /// With everything decided.
    decided: Option<S>,
    upto: Seq,
    /// Records since the last snapshot, or the last that could not be made.
    unfolded: usize,
    waiting: VecDeque<Entry<S>>,
    writing: bool,
    /// Why nothing can be decided any more.
    ended: Option<String>,
}

struct Entry<S: Sourced> {
    records: Vec<S::Record>,
    /// The same as they are written, and events.
    append: Append,
    answer: Answer,
}

impl<S: Sourced> Log<S> {
    /// Opens the log of an entity, behind everything that was ever queued for it.
    ///
    /// # Errors
    /// When it cannot be read.
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
            tokio::spawn(write::all(log.0.clone()));
        }
        log
    }

    /// The state with everything that is on the disk; `None` before the first record.
    pub fn state(&self) -> Option<S> {
        self.0.held().durable.clone()
    }

    /// Looks at the durable state without a copy of it. `look` runs under the log's lock: it is short
    /// and asks nothing of this log.
    pub fn view<R>(&self, look: impl FnOnce(Option<&S>) -> R) -> R {
        look(self.0.held().durable.as_ref())
    }

    /// Waits until everything decided so far is written, or the log has ended.
    pub async fn settled(&self) {
        self.0.settled().await;
    }

    /// Why nothing can be decided any more: the journal stopped, or the entity was forgotten.
    pub fn ended(&self) -> Option<String> {
        self.0.held().ended.clone()
    }

    /// Decides, at once, and gives what ends when the decision is durable. Dropping that stops
    /// nothing. All of its records are decided or, after an error, none.
    ///
    /// # Errors
    /// As [`Self::decide_then`].
    pub fn decide<E: From<LogError>>(
        &self,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, E>,
    ) -> Result<BoxFuture<'static, Result<(), LogError>>, E> {
        let (answer, answered) = oneshot::channel();
        // Whoever decided may have gone.
        self.decide_then(decide, move |outcome| drop(answer.send(outcome)))?;
        let stream = self.0.stream.clone();
        Ok(async move { answered.await.unwrap_or_else(|_| Err(answer::unwritten(stream))) }.boxed())
    }

    /// Decides, at once, and calls `then` when the decision is durable or the log has ended. Calls
    /// are made in the order of the decisions; `then` is short and waits for nothing.
    ///
    /// # Errors
    /// What `decide` refuses with; [`LogError::Ended`], [`LogError::Busy`], [`LogError::Journal`]
    /// for what is too large, [`LogError::Defect`] for a record that does not follow. Then nothing
    /// is decided and `then` is not called.
    pub fn decide_then<E: From<LogError>>(
        &self,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, E>,
        then: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Result<(), E> {
        let stream = &self.0.stream;
        let begin = {
            let mut held = self.0.held();
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
            tokio::spawn(write::all(self.0.clone()));
        }
        Ok(())
    }

    /// The error of a decision whose outcome was lost with the log's writer.
    pub(crate) fn unwritten(&self) -> LogError {
        answer::unwritten(self.0.stream.clone())
    }

    /// Removes all records, behind everything decided; nothing can be decided after it. Once begun
    /// it is done, whether or not anybody waits for it. Then [`Self::state`] is `None`.
    ///
    /// # Errors
    /// When they could not be removed; the log has ended all the same, and one that is opened anew
    /// tells what is there.
    pub async fn forget(&self) -> Result<(), LogError> {
        let log = self.0.clone();
        let stream = log.stream.clone();
        let removed = tokio::spawn(async move { log.forget().await }).await;
        removed.unwrap_or_else(|panic| Err(LogError::Defect { stream, what: panic.to_string() }))
    }
}

impl<S: Sourced> Held<S> {
    /// Applies all of a decision's records or none of them.
    fn follow(&mut self, records: &[S::Record]) -> Result<(), S::Record> {
        if let [record] = records {
            // One that does not follow leaves the state as it was.
            return follow(&mut self.decided, record.clone());
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
    fn held(&self) -> MutexGuard<'_, Held<S>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, source: hivekeep_store::Error) -> LogError {
        LogError::Journal { stream: self.stream.clone(), source }
    }

    /// What is handed to the journal, within its limits.
    fn append(&self, records: &[S::Record], events: Vec<NewEvent>) -> Result<Append, LogError> {
        let stream = self.stream.clone();
        let defect = |what| LogError::Defect { stream: stream.clone(), what };
        let encoded: Result<Vec<_>, _> = records.iter().map(LogRecord::encode).collect();
        let mut records = encoded.map_err(defect)?;
        if let Some(piece_bytes) = S::PIECE_BYTES {
            records = records.iter().flat_map(|whole| record::pieces(whole, piece_bytes)).collect();
        }
        let append = Append { stream, records, events };
        if !append.records.is_empty() || !append.events.is_empty() {
            self.journal.check(&append).map_err(|error| self.failed(error))?;
        }
        Ok(append)
    }

    async fn settled(&self) {
        // The sender is this log's.
        let _all_written = self.idle.subscribe().wait_for(|idle| *idle).await.is_ok();
    }

    async fn forget(&self) -> Result<(), LogError> {
        if let Some(why) = self.held().end("it is removed") {
            return Err(LogError::Ended { stream: self.stream.clone(), why });
        }
        self.settled().await;
        self.journal.forget(&self.stream).await.map_err(|error| self.failed(error))?;
        let mut held = self.held();
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
