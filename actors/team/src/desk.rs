//! A member's tasks as an actor: the ledger as a value, the journal beside it, its guest behind
//! the port [`hivekeep_kernel::ports::Tasks`].
//!
//! ```text
//!  assign ─► written, and answered ─► put into the guest ─► … ─► its result read ─► written
//!                                     (again, until taken)                            │
//!              gone, and remembered ◄── received ◄── handed out ◄── acknowledged to the guest
//! ```
//! A task is answered when it is durable here. Everything after that goes on by itself: at once
//! when there is news, and at the latest every [`hivekeep_kernel::ports::TASK_POLL`]. A result is
//! kept here before its guest may drop it, and by the guest before that.

pub mod assignment;
pub mod ledger;
pub(crate) mod records;
mod task_sync;
mod write;

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{
    Context, Entity, Fault, MessageId, SessionId, TeamId, ToolError, WorkspaceId, fault_point,
};
use tokio::sync::oneshot;

use crate::{
    lending::{Ask, Queue},
    pen::{self, Pen},
    refuse,
    shared::TeamShared,
};
use ledger::{Bounds, Kept, Refused, Stand, Task, TaskLedger};
use task_sync::{News, TaskSync};
use write::Entry;

/// Tasks without a result have this part of `inbox_mb`, and results that wait another: together
/// with what is remembered they fit a snapshot.
const PART: usize = 3;

type Reply<T> = oneshot::Sender<Result<T, ToolError>>;

/// What a desk can be told.
pub(crate) enum Msg {
    /// A task for it.
    Assign(Arc<Task>, Reply<Stand>),
    /// The receiver has the results of tasks that these messages assigned.
    Confirm(BTreeSet<MessageId>, Reply<usize>),
    /// Somebody wants results.
    Ask(Ask<Arc<Kept>>),
    /// A loan is over.
    Settle { loan: u64, taken: bool },
    /// How much is there?
    Look(oneshot::Sender<Load>),
    /// Take no more, and answer when nothing is being written.
    Close(oneshot::Sender<()>),
    /// From the guest, or of it.
    News(News),
    /// Something was written.
    Pen(pen::News<Entry>),
}

impl From<pen::News<Entry>> for Msg {
    fn from(news: pen::News<Entry>) -> Self {
        Self::Pen(news)
    }
}

/// How much a member has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Tasks without a result.
    pub(crate) pending: usize,
    /// Those of them that run, as the guest said last.
    pub(crate) running: usize,
    /// Results that wait to be received.
    pub(crate) results: usize,
    /// What keeps tasks from the guest, if anything does.
    pub(crate) trouble: Option<String>,
}

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) house: Arc<TeamShared>,
    pub(crate) team: TeamId,
    /// In whose name is looked whether the workspace is there.
    pub(crate) owner: SessionId,
    pub(crate) number: usize,
    pub(crate) member: String,
    pub(crate) workspace: WorkspaceId,
}

/// A member's tasks.
pub(crate) struct TaskQueue {
    me: Context<Msg>,
    seed: Seed,
    ledger: TaskLedger,
    lanes: TaskSync,
    pen: Pen<Entry>,
    asks: Queue<Arc<Kept>>,
    closed: bool,
}

impl Entity for TaskQueue {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        let stream = records::stream(seed.team, seed.number);
        let options = &seed.house.options;
        let bytes = options.inbox_mb * 1024 * 1024 / PART;
        let bounds = Bounds { tasks: options.inbox_messages, bytes };
        let mut ledger = TaskLedger::new(bounds, seed.house.first_loan());
        let fill = move |snapshot: Option<&[u8]>, records: &[Vec<u8>]| {
            records::replay(&mut ledger, snapshot, records).map(|()| ledger)
        };
        let (ledger, records) = pen::read(seed.house.journal.clone(), stream.clone(), fill).await?;
        let address = me.address.clone();
        let settle = move |loan, taken| {
            // A desk that was restarted knows of no loans.
            let _ = address.send(Msg::Settle { loan, taken });
        };
        let lanes = TaskSync::new(ledger.done_ids());
        let (house, member) = (seed.house.clone(), seed.member.clone());
        let pen = Pen::new(house, seed.team, member, stream, records);
        let asks = Queue::new(Arc::new(settle));
        let mut desk = Self { me, seed, ledger, lanes, pen, asks, closed: false };
        desk.go_on();
        Ok(desk)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Assign(task, reply) => self.assign(task, reply),
            // Nothing is written of a desk that is being cleared away; so below.
            Msg::Confirm(_, reply) if self.closed => {
                drop(reply.send(Err(refuse::destroying(&self.seed.member))));
            }
            Msg::Confirm(ids, reply) => {
                let gone = self.ledger.confirm(&ids);
                self.write(Entry::Taken(gone, Some(reply)));
                self.go_on();
            }
            Msg::Ask(ask) => {
                self.asks.join(ask, self.seed.house.options.inbox_receivers, &self.seed.member);
                self.serve();
            }
            Msg::Settle { .. } if self.closed => {}
            Msg::Settle { loan, taken } => {
                let gone = self.ledger.settle(loan, taken);
                if !gone.is_empty() {
                    fault_point!("task.before_taken");
                    self.write(Entry::Taken(gone, None));
                }
                self.serve();
                // There may be room for results that wait in the guest.
                self.go_on();
            }
            // Whoever asked may have gone.
            Msg::Look(reply) => drop(reply.send(self.load())),
            Msg::Close(done) => {
                self.closed = true;
                self.pen.close(&self.me, done);
            }
            Msg::News(news) => self.hear(news),
            Msg::Pen(news) => self.written(news)?,
        }
        Ok(())
    }
}

impl TaskQueue {
    fn assign(&mut self, task: Arc<Task>, reply: Reply<Stand>) {
        if self.closed {
            return drop(reply.send(Err(refuse::destroying(&self.seed.member))));
        }
        match self.ledger.admit(&task) {
            Ok(Stand::New) => self.write(Entry::Assigned(task, reply)),
            // What is known may still be being written: its answer waits behind that.
            Ok(known) => self.write(Entry::Repeat(known, reply)),
            // The sender may have gone; so below.
            Err(Refused::Differs) => {
                let error = refuse::task_differs(&self.seed.member, &task.work.task_id);
                drop(reply.send(Err(error)));
            }
            Err(Refused::Full { tasks, bytes }) => {
                drop(reply.send(Err(refuse::too_many_tasks(&self.seed.member, tasks, bytes))));
            }
        }
    }

    fn serve(&mut self) {
        let pending = self.ledger.pending();
        self.asks.serve(self.ledger.results(), pending);
    }

    fn load(&mut self) -> Load {
        let (pending, results) = (self.ledger.pending(), self.ledger.results().len());
        let running = self.lanes.running.min(pending);
        Load { pending, running, results, trouble: self.lanes.trouble.clone() }
    }
}
