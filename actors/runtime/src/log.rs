//! An event-sourced log: the records of one entity, and the state they add up to.
//!
//! ```text
//! decide ─▶ decided ─▶ waits ─▶ written, many together ─▶ durable ─▶ answered
//!                                        └─ failed: broken, until it is opened again
//! ```
//! A decision is made of the state with everything decided before it, so two of them never
//! contradict each other; it is answered, and seen by [`Log::state`], when it is on the disk. What
//! comes while something is being written goes together in the next write (group commit). A long
//! stream is folded by the same task between two writes, so a snapshot's state and its position are
//! of one moment.
//!
//! A write whose outcome is not known breaks the log: only the journal knows what is durable. Its
//! owner fails then, and its next incarnation opens the stream again.

mod load;
mod write;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{Fault, Layer, ToolError};
use hivekeep_store::{Journal, NewEvent, Seq, StreamId};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{oneshot, watch};

pub use load::{Loaded, Streams, load, load_all, read, read_all};

/// What the records of one entity add up to. Records are JSON.
pub trait Sourced: Clone + Send + Sync + 'static {
    /// The first part of its streams' names: `KIND/ID`. Never changes.
    const KIND: &'static str;
    /// After so many records the stream is folded into a snapshot, which needs [`Self::fold`].
    const FOLD_EVERY: usize = usize::MAX;
    /// One record. What was written once is readable for ever.
    type Record: Serialize + DeserializeOwned + fmt::Debug + Send + 'static;

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

/// Why a log cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stream {stream}: {what}")]
pub struct LogError {
    /// Of which stream.
    pub stream: StreamId,
    /// In words.
    pub what: String,
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<LogError> for ToolError {
    fn from(error: LogError) -> Self {
        Self::new(Layer::Store, "journal_failed", error.to_string())
            .next("look at `hivekeep check` and the daemon's log; nothing was acknowledged")
            .retryable()
    }
}

/// What is decided: records that follow each other, and events told in the same commit.
#[derive(Debug)]
pub struct Decision<R> {
    /// In order. Without any, the decision is answered when all before it are durable.
    pub records: Vec<R>,
    /// For whoever follows the daemon's events.
    pub events: Vec<NewEvent>,
}

impl<R> Decision<R> {
    /// One record that nobody else is told of.
    pub fn record(record: R) -> Self {
        Self { records: vec![record], events: Vec::new() }
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
    /// Records that no snapshot covers.
    unfolded: usize,
    waiting: VecDeque<Entry<S>>,
    writing: bool,
    /// Why nothing can be decided any more.
    ended: Option<String>,
}

struct Entry<S: Sourced> {
    decision: Decision<S::Record>,
    answer: oneshot::Sender<Result<(), LogError>>,
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
    /// written to its stream since.
    pub fn of(journal: Journal, stream: StreamId, loaded: Option<Loaded<S>>) -> Self {
        let (state, upto, unfolded) = match loaded {
            Some(Loaded { state, upto, unfolded }) => (Some(state), upto, unfolded),
            None => (None, Seq::ZERO, 0),
        };
        let held = Held {
            durable: state.clone(),
            decided: state,
            upto,
            unfolded,
            waiting: VecDeque::new(),
            writing: false,
            ended: None,
        };
        let idle = watch::channel(true).0;
        Self(Arc::new(Inner { journal, stream, held: Mutex::new(held), idle }))
    }

    /// The state with everything that is on the disk; `None` before the first record.
    pub fn state(&self) -> Option<S> {
        self.0.held().durable.clone()
    }

    /// Why nothing can be decided any more: a write failed, or the entity was forgotten.
    pub fn ended(&self) -> Option<String> {
        self.0.held().ended.clone()
    }

    /// Decides, at once, and gives what ends when the decision is durable. Dropping that stops
    /// nothing.
    ///
    /// # Errors
    /// What `decide` refuses with; `journal_failed` when the log has ended. A record that does not
    /// follow ends it.
    pub fn decide<E: From<LogError>>(
        &self,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, E>,
    ) -> Result<BoxFuture<'static, Result<(), LogError>>, E>
    where
        S::Record: Clone,
    {
        let (answer, answered) = oneshot::channel();
        let begin = {
            let mut held = self.0.held();
            if let Some(what) = held.ended.clone() {
                return Err(self.0.error(what).into());
            }
            let decision = decide(held.decided.as_ref())?;
            for record in decision.records.iter().cloned() {
                if let Err(record) = follow(&mut held.decided, record) {
                    let what = format!("{record:?} does not follow");
                    held.ended = Some(what.clone());
                    return Err(self.0.error(what).into());
                }
            }
            held.waiting.push_back(Entry { decision, answer });
            self.0.idle.send_replace(false);
            !std::mem::replace(&mut held.writing, true)
        };
        if begin {
            tokio::spawn(write::all(self.0.clone()));
        }
        let gone = self.0.error("the daemon stopped before it was written".to_owned());
        Ok(async move { answered.await.unwrap_or(Err(gone)) }.boxed())
    }

    /// Removes all records, behind everything decided; nothing can be decided after it.
    ///
    /// # Errors
    /// When they could not be removed; then it is as it was.
    pub async fn forget(&self) -> Result<(), LogError> {
        let before = self.0.held().ended.replace("it is removed".to_owned());
        // The sender is this log's.
        let _all_written = self.0.idle.subscribe().wait_for(|idle| *idle).await.is_ok();
        let forgotten = self.0.journal.forget(&self.0.stream).await;
        let mut held = self.0.held();
        match forgotten {
            Ok(()) => (held.durable, held.decided) = (None, None),
            Err(_) => held.ended = before,
        }
        drop(held);
        forgotten.map_err(|error| self.0.error(error.to_string()))
    }
}

impl<S: Sourced> Inner<S> {
    fn held(&self) -> MutexGuard<'_, Held<S>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, what: String) -> LogError {
        LogError { stream: self.stream.clone(), what }
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
