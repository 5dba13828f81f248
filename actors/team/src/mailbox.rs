//! A member's inbox as an actor: the book as a value, the journal beside it.
//!
//! ```text
//!  put ─────► admitted ─► written, with others ─► in the book, and answered ─► handed out
//!  receive ─► a loan ── the answer was taken ─► gone from the book, and written
//!                    └─ it was not ───────────► handed out again
//! ```
//! A message is answered when it is durable, and can be received from then on. That it was taken
//! is written after the answer has left: a crash in between hands it out again, marked as such.

pub mod book;
pub(crate) mod records;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use hivekeep_kernel::{Entity, Fault, Me, MessageId, TeamId, ToolError, fault_point};
use hivekeep_store::{NewEvent, Seq, StreamId};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    house::House,
    lending::{Ask, Queue},
    refuse,
};
use book::{Book, Bounds, Message};
use records::Record;

/// Records that go together; with the longest contents they are 16 MiB.
const BATCH: usize = 64;
/// Records after which a stream is folded.
const FOLD_AFTER: usize = 512;

type Reply<T> = oneshot::Sender<Result<T, ToolError>>;

/// What an inbox can be told.
pub(crate) enum Msg {
    /// A message for it.
    Put(Message, Reply<()>),
    /// The receiver has these.
    Confirm(BTreeSet<MessageId>, Reply<usize>),
    /// Somebody wants messages.
    Ask(Ask<Message>),
    /// A loan is over.
    Settle { loan: u64, taken: bool },
    /// What is in it?
    Look(oneshot::Sender<Vec<MessageId>>),
    /// Take no more, and answer when nothing is being written.
    Close(oneshot::Sender<()>),
    /// A write has ended.
    Written(Vec<Entry>, Result<Seq, hivekeep_store::Error>),
    /// A fold has ended.
    Folded,
}

/// Something to be written.
pub(crate) enum Entry {
    Put(Message, Reply<()>),
    Taken(Vec<MessageId>, Option<Reply<usize>>),
}

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) house: Arc<House>,
    pub(crate) team: TeamId,
    pub(crate) number: usize,
    pub(crate) member: String,
}

/// A member's inbox.
pub(crate) struct Mailbox {
    me: Me<Msg>,
    seed: Seed,
    stream: StreamId,
    book: Book,
    unwritten: VecDeque<Entry>,
    writing: bool,
    /// Records since the stream was folded.
    records: usize,
    asks: Queue<Message>,
    closing: Vec<oneshot::Sender<()>>,
    closed: bool,
}

impl Entity for Mailbox {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Me<Msg>) -> Result<Self, Fault> {
        let stream = records::stream(seed.team, seed.number);
        let (journal, read) = (seed.house.journal.clone(), stream.clone());
        let replay = tokio::task::spawn_blocking(move || journal.replay(&read)).await;
        let unreadable = |what: String| Fault::new(format!("the stream {stream}: {what}"));
        let replay = replay
            .map_err(|error| unreadable(error.to_string()))?
            .map_err(|error| unreadable(error.to_string()))?;
        let snapshot = replay.snapshot.as_ref().map(|(_, bytes)| bytes.as_slice());
        let records: Vec<_> = replay.records.into_iter().map(|(_, bytes)| bytes).collect();
        let messages =
            records::replay(snapshot, &records).map_err(|error| unreadable(error.to_string()))?;
        let options = &seed.house.options;
        let bounds =
            Bounds { messages: options.inbox_messages, bytes: options.inbox_mb * 1024 * 1024 };
        let mut book = Book::new(bounds, seed.house.first_loan());
        book.restore(messages);
        let address = me.address.clone();
        let settle = move |loan, taken| {
            // An inbox that was restarted knows of no loans.
            let _ = address.send(Msg::Settle { loan, taken });
        };
        Ok(Self {
            me,
            seed,
            book,
            unwritten: VecDeque::new(),
            writing: false,
            records: records.len(),
            asks: Queue::new(Arc::new(settle)),
            closing: Vec::new(),
            closed: false,
            stream: stream.clone(),
        })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Put(message, reply) => self.put(message, reply),
            // Nothing is written of an inbox that is being cleared away; so below.
            Msg::Confirm(_, reply) if self.closed => {
                drop(reply.send(Err(refuse::destroying(&self.seed.member))));
            }
            Msg::Confirm(ids, reply) => {
                let gone = self.book.confirm(&ids);
                self.write(Entry::Taken(gone, Some(reply)));
            }
            Msg::Ask(ask) => self.ask(ask),
            Msg::Settle { .. } if self.closed => {}
            Msg::Settle { loan, taken } => {
                let gone = self.book.settle(loan, taken);
                if !gone.is_empty() {
                    fault_point!("mailbox.before_taken");
                    self.write(Entry::Taken(gone, None));
                }
                self.serve();
            }
            // Whoever asked may have gone.
            Msg::Look(reply) => {
                drop(reply.send(self.book.held().map(|message| message.id).collect()));
            }
            Msg::Close(done) => {
                self.closed = true;
                self.closing.push(done);
                self.rest();
            }
            Msg::Written(entries, outcome) => self.written(entries, outcome)?,
            Msg::Folded => {
                self.writing = false;
                self.rest();
            }
        }
        Ok(())
    }
}

impl Mailbox {
    fn put(&mut self, message: Message, reply: Reply<()>) {
        if self.closed {
            return drop(reply.send(Err(refuse::destroying(&self.seed.member))));
        }
        match self.book.admit(&message) {
            Ok(()) => self.write(Entry::Put(message, reply)),
            // The sender may have gone; so below.
            Err(full) => drop(reply.send(Err(refuse::inbox_full(&self.seed.member, full)))),
        }
    }

    fn ask(&mut self, ask: Ask<Message>) {
        self.asks.join(ask, self.seed.house.options.inbox_receivers, &self.seed.member);
        self.serve();
    }

    fn serve(&mut self) {
        self.asks.serve(&mut self.book, 0);
    }

    fn write(&mut self, entry: Entry) {
        self.unwritten.push_back(entry);
        self.rest();
    }

    /// Writes what waits, unless something is being written; what comes meanwhile goes together.
    fn rest(&mut self) {
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
        let (mut records, mut events) = (Vec::new(), Vec::new());
        for entry in &entries {
            match entry {
                Entry::Put(message, _) => {
                    records.push(records::encode(&Record::Put(message.clone())));
                    events.push(self.put_event(message));
                }
                Entry::Taken(ids, _) if ids.is_empty() => {}
                Entry::Taken(ids, _) => {
                    records.push(records::encode(&Record::Taken(ids.clone())));
                    events.push(self.taken_event(ids));
                }
            }
        }
        let (journal, stream) = (self.seed.house.journal.clone(), self.stream.clone());
        let mailbox = self.me.address.clone();
        self.records += records.len();
        let _detached = self.me.workers.spawn(async move {
            let outcome = match records.is_empty() {
                true => Ok(Seq::ZERO),
                false => journal.append_and_publish(&stream, records, events).await,
            };
            // An inbox that is gone is followed by one that reads the journal.
            let _ = mailbox.send(Msg::Written(entries, outcome));
        });
    }

    /// After a failure only the journal knows what is durable, so the next incarnation asks it.
    fn written(
        &mut self,
        entries: Vec<Entry>,
        outcome: Result<Seq, hivekeep_store::Error>,
    ) -> Result<(), Fault> {
        let upto = match outcome {
            Ok(upto) => upto,
            Err(error) => {
                let waiting = entries.into_iter().chain(std::mem::take(&mut self.unwritten));
                waiting.for_each(|entry| entry.fail(refuse::store(&error)));
                return Err(Fault::new(format!("the inbox could not be recorded: {error}")));
            }
        };
        for entry in entries {
            match entry {
                Entry::Put(message, reply) => {
                    fault_point!("mailbox.after_put");
                    self.book.arrive(message);
                    drop(reply.send(Ok(())));
                }
                Entry::Taken(ids, reply) => {
                    if let Some(reply) = reply {
                        drop(reply.send(Ok(ids.len())));
                    }
                }
            }
        }
        if self.records >= FOLD_AFTER && upto > Seq::ZERO {
            self.fold(upto);
        } else {
            self.writing = false;
        }
        self.serve();
        self.rest();
        Ok(())
    }

    /// What was taken and is not written yet is not in the snapshot; that it is gone is true.
    fn fold(&mut self, upto: Seq) {
        self.records = 0;
        let bytes = records::snapshot(self.book.held());
        let (journal, stream) = (self.seed.house.journal.clone(), self.stream.clone());
        let mailbox = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            if let Err(error) = journal.snapshot(&stream, upto, bytes).await {
                tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
            }
            let _ = mailbox.send(Msg::Folded);
        });
    }

    fn put_event(&self, message: &Message) -> NewEvent {
        let data = json!({
            "message_id": message.id, "member": self.seed.member, "from": message.from,
            "to": message.to, "message_type": message.kind, "bytes": message.content.len(),
        });
        let subject = self.seed.team.to_string();
        NewEvent { kind: "message.put".to_owned(), subject, data }
    }

    fn taken_event(&self, ids: &[MessageId]) -> NewEvent {
        let data = json!({ "message_ids": ids, "member": self.seed.member });
        let subject = self.seed.team.to_string();
        NewEvent { kind: "message.taken".to_owned(), subject, data }
    }
}

impl Entry {
    fn fail(self, error: ToolError) {
        match self {
            Self::Put(_, reply) => drop(reply.send(Err(error))),
            Self::Taken(_, Some(reply)) => drop(reply.send(Err(error))),
            Self::Taken(_, None) => {}
        }
    }
}
