//! What an inbox or a desk writes of itself: one write at a time, what comes meanwhile together.
//!
//! ```text
//! write ─► waits ─► being written ─► durable: the entries come back, to be settled and answered
//!                        └─ failed: its actor ends, and the next one asks the journal
//! ```
//! The journal's writer posts the outcome itself; no task waits for it.

use std::{collections::VecDeque, fmt::Display, sync::Arc};

use hivekeep_kernel::{Context, Fault, TeamId, ToolError};
use hivekeep_store::{Append, Done, Error, Journal, NewEvent, Seq, StreamId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{refuse, shared::TeamShared};

/// Records that go together; with the longest contents they are 16 MiB.
const BATCH: usize = 64;
/// Records after which a stream is folded.
const FOLD_AFTER: usize = 512;

/// Something to be written.
pub(crate) trait Entry: Send + 'static {
    /// What is written of it; some have only their turn.
    fn record(&self) -> Option<Vec<u8>>;

    /// What is told of it then: the kind, and data beside the member.
    fn event(&self) -> Option<(&'static str, Value)>;

    /// Tells whoever waits that it was not written, as far as is known.
    fn fail(self, error: ToolError);
}

/// What the pen tells its actor.
pub(crate) enum News<E> {
    /// A write has ended.
    Written { pen: u64, entries: Vec<E>, outcome: Result<Seq, Error> },
    /// A fold has ended.
    Folded { pen: u64 },
}

/// Writes the stream of one member's inbox or desk.
pub(crate) struct Pen<E> {
    /// Of this incarnation: what another began is not its own.
    number: u64,
    house: Arc<TeamShared>,
    team: TeamId,
    member: String,
    stream: StreamId,
    unwritten: VecDeque<E>,
    writing: bool,
    /// Records since the stream was folded.
    records: usize,
    closing: Vec<oneshot::Sender<()>>,
}

/// Reads a stream back, off the async threads, behind all that was queued for it by whoever wrote
/// it before: an append whose writer did not wait for it may still be on its way. Gives what was
/// made of it, and how many records there are behind the snapshot.
pub(crate) async fn read<T, W>(
    journal: Journal,
    stream: StreamId,
    make: impl FnOnce(Option<&[u8]>, &[Vec<u8>]) -> Result<T, W> + Send + 'static,
) -> Result<(T, usize), Fault>
where
    T: Send + 'static,
    W: Display,
{
    let unreadable = |what: String| Fault::new(format!("the stream {stream}: {what}"));
    journal.settled().await.map_err(|error| unreadable(error.to_string()))?;
    let read = stream.clone();
    let made = tokio::task::spawn_blocking(move || {
        let replay = journal.replay(&read).map_err(|error| error.to_string())?;
        let snapshot = replay.snapshot.as_ref().map(|(_, bytes)| bytes.as_slice());
        let records: Vec<_> = replay.records.into_iter().map(|(_, bytes)| bytes).collect();
        let made = make(snapshot, &records).map_err(|error| error.to_string())?;
        Ok((made, records.len()))
    });
    let made = made.await.unwrap_or_else(|panic| Err(panic.to_string()));
    made.map_err(unreadable)
}

impl<E: Entry> Pen<E> {
    /// For a stream that has so many records behind its snapshot.
    pub(crate) fn new(
        house: Arc<TeamShared>,
        team: TeamId,
        member: String,
        stream: StreamId,
        records: usize,
    ) -> Self {
        Self {
            number: house.first_loan(),
            house,
            team,
            member,
            stream,
            unwritten: VecDeque::new(),
            writing: false,
            records,
            closing: Vec::new(),
        }
    }

    /// Writes it, as soon as what is being written is.
    pub(crate) fn write<M>(&mut self, me: &Context<M>, entry: E)
    where
        M: From<News<E>> + Send + 'static,
    {
        self.unwritten.push_back(entry);
        self.rest(me);
    }

    /// Tells when nothing is being written.
    pub(crate) fn close<M>(&mut self, me: &Context<M>, done: oneshot::Sender<()>)
    where
        M: From<News<E>> + Send + 'static,
    {
        self.closing.push(done);
        self.rest(me);
    }

    /// Begins with what waits, unless something is being written.
    fn rest<M>(&mut self, me: &Context<M>)
    where
        M: From<News<E>> + Send + 'static,
    {
        if self.writing {
            return;
        }
        if self.unwritten.is_empty() {
            // Who waited for the end may have gone.
            for done in self.closing.drain(..) {
                let _ = done.send(());
            }
            return;
        }
        self.writing = true;
        let batch = self.unwritten.len().min(BATCH);
        let entries: Vec<_> = self.unwritten.drain(..batch).collect();
        let records: Vec<_> = entries.iter().filter_map(Entry::record).collect();
        let events = entries.iter().filter_map(Entry::event);
        let events = events.map(|(kind, data)| self.event(kind, data)).collect();
        self.records += records.len();
        let (pen, actor) = (self.number, me.address.clone());
        let done: Done = Box::new(move |outcome| {
            // An actor that is gone is followed by one that reads the journal.
            let _ = actor.send(News::Written { pen, entries, outcome }.into());
        });
        if records.is_empty() {
            return done(Ok(Seq::ZERO));
        }
        let append = Append { stream: self.stream.clone(), records, events };
        if let Err((append, done)) = self.house.journal.try_append(append, done) {
            // The journal's queue is full.
            let journal = self.house.journal.clone();
            let _detached = me.workers.spawn(async move {
                let Append { stream, records, events } = append;
                done(journal.append_and_publish(&stream, records, events).await);
            });
        }
    }

    /// What is durable now, in the order in which it came, and up to where the stream goes; `None`
    /// when that is not this pen's. After a failure only the journal knows what is durable, so the
    /// next incarnation asks it.
    pub(crate) fn hear(&mut self, news: News<E>) -> Result<Option<(Vec<E>, Seq)>, Fault> {
        let (entries, outcome) = match news {
            News::Written { pen, entries, outcome } if pen == self.number => (entries, outcome),
            News::Folded { pen } if pen == self.number => return Ok(Some((Vec::new(), Seq::ZERO))),
            News::Written { .. } | News::Folded { .. } => return Ok(None),
        };
        match outcome {
            Ok(upto) => Ok(Some((entries, upto))),
            Err(error) => {
                let waiting = entries.into_iter().chain(std::mem::take(&mut self.unwritten));
                waiting.for_each(|entry| entry.fail(refuse::store(&error)));
                Err(Fault::new(format!("`{}` could not be recorded: {error}", self.stream)))
            }
        }
    }

    /// Goes on once what was heard is settled: folds a long stream to what `keep` gives, encoded
    /// off the async threads, or writes what came meanwhile.
    pub(crate) fn go_on<M, K>(&mut self, me: &Context<M>, upto: Seq, keep: impl FnOnce() -> K)
    where
        M: From<News<E>> + Send + 'static,
        K: FnOnce() -> Vec<u8> + Send + 'static,
    {
        if self.records < FOLD_AFTER || upto == Seq::ZERO {
            self.writing = false;
            return self.rest(me);
        }
        self.records = 0;
        let encode = keep();
        let (journal, stream) = (self.house.journal.clone(), self.stream.clone());
        let (pen, actor) = (self.number, me.address.clone());
        let _detached = me.workers.spawn(async move {
            let folded = match tokio::task::spawn_blocking(encode).await {
                Ok(bytes) => {
                    let folded = journal.snapshot(&stream, upto, bytes).await;
                    folded.map_err(|error| error.to_string())
                }
                Err(panic) => Err(panic.to_string()),
            };
            if let Err(error) = folded {
                tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
            }
            let _ = actor.send(News::Folded { pen }.into());
        });
    }

    /// An event of this member's.
    pub(crate) fn event(&self, kind: &str, mut data: Value) -> NewEvent {
        data["member"] = json!(self.member);
        NewEvent { kind: kind.to_owned(), subject: self.team.to_string(), data }
    }
}
