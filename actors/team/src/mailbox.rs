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

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{Context, Entity, Fault, MessageId, TeamId, ToolError, fault_point};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    lending::{Ask, Queue},
    pen::{self, News, Pen},
    refuse,
    shared::TeamShared,
};
use book::{Book, Bounds, Message};

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
    /// Something was written.
    Pen(News<Entry>),
}

impl From<News<Entry>> for Msg {
    fn from(news: News<Entry>) -> Self {
        Self::Pen(news)
    }
}

/// Something to be written.
pub(crate) enum Entry {
    Put(Message, Reply<()>),
    Taken(Vec<MessageId>, Option<Reply<usize>>),
}

impl pen::Entry for Entry {
    fn record(&self) -> Option<Vec<u8>> {
        match self {
            Self::Put(message, _) => Some(records::put(message)),
            Self::Taken(ids, _) => (!ids.is_empty()).then(|| records::taken(ids)),
        }
    }

    fn event(&self) -> Option<(&'static str, Value)> {
        match self {
            Self::Put(message, _) => Some((
                "message.put",
                json!({
                    "message_id": message.id, "from": message.from, "to": message.to,
                    "message_type": message.kind, "bytes": message.content.len(),
                }),
            )),
            Self::Taken(ids, _) => {
                (!ids.is_empty()).then(|| ("message.taken", json!({ "message_ids": ids })))
            }
        }
    }

    fn fail(self, error: ToolError) {
        match self {
            Self::Put(_, reply) => drop(reply.send(Err(error))),
            Self::Taken(_, Some(reply)) => drop(reply.send(Err(error))),
            Self::Taken(_, None) => {}
        }
    }
}

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) house: Arc<TeamShared>,
    pub(crate) team: TeamId,
    pub(crate) number: usize,
    pub(crate) member: String,
}

/// A member's inbox.
pub(crate) struct Mailbox {
    me: Context<Msg>,
    seed: Seed,
    book: Book,
    pen: Pen<Entry>,
    asks: Queue<Message>,
    closed: bool,
}

impl Entity for Mailbox {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        let stream = records::stream(seed.team, seed.number);
        let (messages, records) =
            pen::read(seed.house.journal.clone(), stream.clone(), records::replay).await?;
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
        let (house, member) = (seed.house.clone(), seed.member.clone());
        let pen = Pen::new(house, seed.team, member, stream, records);
        Ok(Self { me, seed, book, pen, asks: Queue::new(Arc::new(settle)), closed: false })
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
                self.pen.close(&self.me, done);
            }
            Msg::Pen(news) => self.written(news)?,
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
        self.pen.write(&self.me, entry);
    }

    fn written(&mut self, news: News<Entry>) -> Result<(), Fault> {
        let Some((entries, upto)) = self.pen.hear(news)? else { return Ok(()) };
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
        // What was taken and is not written yet is not in the snapshot; that it is gone is true.
        self.pen.go_on(&self.me, upto, || {
            let held: Vec<_> = self.book.held().cloned().collect();
            move || records::snapshot(&held)
        });
        self.serve();
        Ok(())
    }
}
