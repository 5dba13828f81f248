//! Group commit of one log: the task that writes as long as something waits to be written, the continuations
//! of decisions, each called exactly once, even if the writer panics, and the errors.

use std::sync::Arc;

use hivekeep_kernel::{Fault, Layer, ToolError, codes, lock};
use hivekeep_store::{Append, Error, Seq, StreamId};
use tokio::sync::oneshot;

use super::{Entry, Inner, LogRecord, Sourced, follow};

/// Maximum number of decisions in one write.
const BATCH: usize = 64;
/// Maximum size of one write, unless a single decision is larger.
const BATCH_BYTES: usize = 1 << 20;

/// Drop guard: a writer that did not complete, because of a panic or the daemon's end, ends the
/// log.
struct Writer<S: Sourced>(Option<Arc<Inner<S>>>);

impl<S: Sourced> Drop for Writer<S> {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            end(&log, Vec::new(), "its writer ended");
        }
    }
}

/// Folds what is to be folded, writes all that waits, and ends.
pub(super) async fn all<S: Sourced>(log: Arc<Inner<S>>) {
    let mut writer = Writer(Some(log.clone()));
    fold(&log).await;
    while let Some(entries) = next(&log) {
        match write(&log, together(&log, &entries)).await {
            Ok(upto) => {
                if let Err(defect) = apply(&log, &entries, upto) {
                    return end(&log, entries, &defect);
                }
                entries.into_iter().for_each(|entry| entry.answer.give(Ok(())));
                fold(&log).await;
            }
            Err(error) => return end(&log, entries, &error.to_string()),
        }
    }
    // A next writer may have begun already.
    writer.0 = None;
}

/// Takes the next batch; `None` when there is nothing, and this task is to end.
fn next<S: Sourced>(log: &Inner<S>) -> Option<Vec<Entry<S>>> {
    let mut held = lock(&log.held);
    let mut bytes = 0;
    let fits = |entry: &&Entry<S>| {
        bytes += entry.append.records.iter().map(Vec::len).sum::<usize>();
        bytes <= BATCH_BYTES
    };
    let batch = held.waiting.iter().take(BATCH).take_while(fits).count();
    let batch = batch.max(1).min(held.waiting.len());
    if batch == 0 {
        held.writing = false;
        log.idle.send_replace(true);
        return None;
    }
    Some(held.waiting.drain(..batch).collect())
}

/// Joins the entries into one append.
fn together<S: Sourced>(log: &Inner<S>, entries: &[Entry<S>]) -> Append {
    let mut all = Append { stream: log.stream.clone(), records: Vec::new(), events: Vec::new() };
    for Entry { append, .. } in entries {
        all.records.extend_from_slice(&append.records);
        all.events.extend_from_slice(&append.events);
    }
    all
}

/// Appends without a deadline of its own, so that the outcome is always known. The callers have
/// deadlines.
async fn write<S: Sourced>(log: &Inner<S>, mut append: Append) -> Result<Seq, Error> {
    if append.records.is_empty() && append.events.is_empty() {
        return Ok(lock(&log.held).upto);
    }
    loop {
        let (done, outcome) = oneshot::channel();
        let done = Box::new(move |written| drop(done.send(written)));
        match log.journal.try_append(append, done) {
            Ok(()) => return outcome.await.unwrap_or(Err(Error::Closed)),
            // The journal's queue is full: try again when what is in it now is written.
            Err((back, _)) => append = back,
        }
        match log.journal.settled().await {
            Ok(()) | Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn apply<S: Sourced>(log: &Inner<S>, entries: &[Entry<S>], upto: Seq) -> Result<(), String> {
    let mut held = lock(&log.held);
    let records = entries.iter().flat_map(|entry| &entry.records);
    held.unfolded += records.clone().count();
    if S::SHARED && held.waiting.is_empty() {
        held.durable = held.decided.clone();
    } else {
        for record in records.cloned() {
            follow(&mut held.durable, record)
                .map_err(|record| format!("`{}` was decided and does not follow", record.kind()))?;
        }
    }
    held.upto = upto;
    Ok(())
}

/// Makes a snapshot of a long stream. The state is encoded off the async threads, and without the
/// log's lock; it stays the durable one, for this task alone makes another.
async fn fold<S: Sourced>(log: &Inner<S>) {
    let (upto, state) = {
        let mut held = lock(&log.held);
        if !held.fold_due() {
            return;
        }
        // A snapshot that cannot be made is tried again after as many records.
        held.unfolded = 0;
        (held.upto, held.durable.clone())
    };
    let folded = tokio::task::spawn_blocking(move || state.as_ref().and_then(S::fold)).await;
    let bytes = match folded {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return,
        Err(error) => return tracing::error!(stream = %log.stream, %error, "no snapshot was made"),
    };
    if let Err(error) = log.journal.snapshot(&log.stream, upto, bytes).await {
        let stream = &log.stream;
        tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
    }
}

/// Ends the log and fails everything unwritten.
fn end<S: Sourced>(log: &Inner<S>, entries: Vec<Entry<S>>, why: &str) {
    let mut held = lock(&log.held);
    held.writing = false;
    held.end(why);
    let waiting = std::mem::take(&mut held.waiting);
    drop(held);
    for entry in entries.into_iter().chain(waiting) {
        let error = LogError::Ended { stream: log.stream.clone(), why: why.to_owned() };
        entry.answer.give(Err(error));
    }
    log.idle.send_replace(true);
}

type Then = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Continuation of a decision. Dropped uncalled, by a writer that panics, it reports that the log
/// has ended.
pub(super) struct Answer {
    stream: StreamId,
    then: Option<Then>,
}

impl Answer {
    pub(super) fn new(
        stream: StreamId,
        then: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Self {
        Self { stream, then: Some(Box::new(then)) }
    }

    fn give(mut self, outcome: Result<(), LogError>) {
        if let Some(then) = self.then.take() {
            then(outcome);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(Err(unwritten(self.stream.clone())));
        }
    }
}

/// Error of a decision that was lost because its log ended.
pub(super) fn unwritten(stream: StreamId) -> LogError {
    LogError::Ended { stream, why: "it ended before this was written".to_owned() }
}

/// Failure to read or write a log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The journal refused, or has stopped.
    #[error("the stream {stream}: {source}")]
    Journal {
        /// Stream concerned.
        stream: StreamId,
        /// Error of the journal.
        source: Error,
    },
    /// The stream makes no sense.
    #[error("the stream {stream}: {what}")]
    Unreadable {
        /// Stream concerned.
        stream: StreamId,
        /// Reason: a snapshot or a record that is unreadable or does not follow.
        what: String,
    },
    /// The log has ended: nothing can be decided any more.
    #[error("the stream {stream} has ended: {why}")]
    Ended {
        /// Stream concerned.
        stream: StreamId,
        /// Reason of the end, as a clause.
        why: String,
    },
    /// Too many decisions wait to be written.
    #[error("too much waits to be written to the stream {stream}")]
    Busy {
        /// Stream concerned.
        stream: StreamId,
    },
    /// The program has a defect.
    #[error("the stream {stream}: {what}")]
    Defect {
        /// Stream concerned.
        stream: StreamId,
        /// Description: the panic, or the record that does not follow or cannot be encoded.
        what: String,
    },
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<LogError> for ToolError {
    fn from(error: LogError) -> Self {
        let failed = |code| Self::new(Layer::Store, code, error.to_string());
        match &error {
            LogError::Journal { source: Error::TooLarge { .. }, .. } => {
                failed(codes::TOO_LARGE).next("ask for less, or raise `store.max_record_kb`")
            }
            LogError::Journal { .. } | LogError::Ended { .. } => failed(codes::JOURNAL_FAILED)
                .next("look at `hivekeep check` and the daemon's log; nothing was acknowledged")
                .retryable(),
            LogError::Unreadable { .. } => failed(codes::STATE_UNREADABLE)
                .next("restore the state directory from a backup; nothing was overwritten"),
            LogError::Busy { .. } => failed(codes::BUSY).next("try again soon").retryable(),
            LogError::Defect { .. } => Self::internal(error.to_string()),
        }
    }
}
