//! A member of a ready team: its inbox and its tasks, as two event-sourced logs, and what goes on
//! with them that is not recorded: deliveries, and the synchronisation of tasks with its guest.
//!
//! A value of the team's actor. A message is decided at once and answered when it is durable, by
//! the log itself. Work beside the mailbox comes back as a [`MemberEvent`].

pub(crate) mod delivery;
pub(crate) mod guest;
mod task_sync;

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use futures::{FutureExt, future::BoxFuture};
use hivekeep_kernel::{
    Fault, MessageId, SessionId, TeamId, ToolError, WorkspaceId, fault_point,
    mailbox::ActorUnavailable, workers::Workers,
};
use hivekeep_runtime::log::{Decision, Log, LogError, Sourced};
use hivekeep_store::NewEvent;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    api,
    inbox::{self, Inbox, Item, Message, pick},
    records::State,
    refuse,
    shared::TeamShared,
    tasks::{
        Load, Task,
        ledger::{self, LedgerBounds, Stand, TaskLedger, TaskRefused},
        result::StoredResult,
    },
    waiting::{BoardLine, Queue},
};
use delivery::{Deliveries, Delivery, InFlight, Lease, Request};
use task_sync::TaskSync;

/// Bytes of JSON of the messages in one answer; the tool's budget is 4 MiB, and doors send a result
/// twice.
const MESSAGES_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of JSON of the results in one answer.
const RESULTS_BYTES: usize = 1024 * 1024;
/// Tasks without a result have this part of `inbox_mb`, and results that wait another: together
/// with what is remembered they fit a snapshot.
const PART: usize = 3;

/// Ends when a decision is durable.
pub(crate) type WhenWritten = BoxFuture<'static, Result<(), LogError>>;

/// Event of a member from outside of the mailbox.
pub(crate) enum MemberEvent {
    /// A decision is durable.
    Written,
    /// A log has ended.
    Failed(LogError),
    /// The result of this task is durable.
    Kept(String),
    /// A delivery is over.
    Delivered { number: u64, acked: bool },
    /// About its guest.
    Sync(task_sync::TaskSyncEvent),
}

/// Destination of a member's events: the mailbox of its team.
pub(crate) type Post = Arc<dyn Fn(MemberEvent) -> Result<(), ActorUnavailable> + Send + Sync>;

/// A member's logs, as far as they could be opened; else why not.
pub(crate) struct MemberLogs {
    pub(crate) inbox: Result<Log<Inbox>, ToolError>,
    pub(crate) tasks: Result<Log<TaskLedger>, ToolError>,
}

impl MemberLogs {
    /// Begins those of a member that is new.
    pub(crate) fn begin(shared: &TeamShared, team: TeamId, number: usize) -> Self {
        Self {
            inbox: Ok(shared.inboxes.begin(inbox::stream(team, number))),
            tasks: Ok(shared.ledgers.begin(ledger::stream(team, number))),
        }
    }

    /// Opens those that an earlier incarnation of the team wrote. One that makes no sense keeps nobody
    /// from the other one, nor from other members.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(crate) async fn open(
        shared: &TeamShared,
        team: TeamId,
        number: usize,
    ) -> Result<Self, Fault> {
        let inbox = shared.inboxes.open(inbox::stream(team, number));
        let tasks = shared.ledgers.open(ledger::stream(team, number));
        let (inbox, tasks) = futures::join!(inbox, tasks);
        Ok(Self { inbox: readable(inbox)?, tasks: readable(tasks)? })
    }

    /// The reason why one of them could not be opened.
    pub(crate) fn unavailable(&self) -> Option<&str> {
        let (inbox, tasks) = (self.inbox.as_ref().err(), self.tasks.as_ref().err());
        inbox.or(tasks).map(|error| error.message.as_str())
    }
}

fn readable<L>(opened: Result<L, LogError>) -> Result<Result<L, ToolError>, Fault> {
    match opened {
        Ok(log) => Ok(Ok(log)),
        Err(error @ (LogError::Unreadable { .. } | LogError::Defect { .. })) => {
            tracing::error!(%error, "this is not available until it is mended");
            Ok(Err(refuse::unavailable(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A member; see the module.
pub(crate) struct LiveMember {
    pub(crate) name: String,
    workspace: WorkspaceId,
    team: Log<State>,
    id: TeamId,
    logs: MemberLogs,
    deliveries: Deliveries,
    /// `None` once nobody can receive any more.
    line: Option<BoardLine>,
    /// Time of its opening: results recorded without a time are not older, as far as is known.
    opened_at: DateTime<Utc>,
    sync: TaskSync,
    post: Post,
    workers: Workers,
    shared: Arc<TeamShared>,
}

/// The parts that a member is made from.
pub(crate) struct Init {
    pub(crate) shared: Arc<TeamShared>,
    pub(crate) workers: Workers,
    pub(crate) post: Post,
    /// The log of its team.
    pub(crate) team: Log<State>,
    pub(crate) id: TeamId,
    pub(crate) line: BoardLine,
    pub(crate) name: String,
    pub(crate) workspace: WorkspaceId,
    pub(crate) logs: MemberLogs,
}

/// The state with everything decided, and the durable one.
fn views<S: Sourced + Default, R>(
    log: &Result<Log<S>, ToolError>,
    look: impl FnOnce(&S, &S) -> R,
) -> R {
    let empty = S::default();
    match log {
        Ok(log) => {
            log.views(|decided, durable| look(decided.unwrap_or(&empty), durable.unwrap_or(&empty)))
        }
        Err(_) => look(&empty, &empty),
    }
}

/// Takes those of an inbox that are there out of it. Says how many they are.
fn take<S: Sourced, T: Item>(
    log: &Result<Log<S>, ToolError>,
    ids: &BTreeSet<MessageId>,
    inbox: impl FnOnce(&S) -> &Inbox<T>,
    record: impl FnOnce(Vec<MessageId>) -> S::Record,
    event: impl FnOnce(&[MessageId]) -> NewEvent,
) -> Result<Option<(usize, WhenWritten)>, ToolError> {
    let (Ok(log), false) = (log, ids.is_empty()) else { return Ok(None) };
    let mut count = 0;
    let written = log.decide::<ToolError>(|state| {
        let Some(inbox) = state.map(inbox) else { return Ok(Decision::nothing()) };
        let gone: Vec<_> = inbox.items().map(Item::id).filter(|id| ids.contains(id)).collect();
        count = gone.len();
        if gone.is_empty() {
            return Ok(Decision::nothing());
        }
        let event = event(&gone);
        Ok(Decision::record(record(gone)).event(event))
    })?;
    Ok(Some((count, written)))
}

impl LiveMember {
    pub(crate) fn new(init: Init) -> Self {
        let Init { shared, workers, post, team, id, line, name, workspace, logs } = init;
        let mut deliveries = Deliveries::default();
        // Whether they were handed out before is not known.
        views(&logs.inbox, |_, durable| deliveries.handed_out(durable.items().map(Item::id)));
        let owed = views(&logs.tasks, |_, durable| {
            deliveries.handed_out(durable.results().items().map(Item::id));
            durable.done().map(|result| result.task_id.clone()).collect()
        });
        let sync = TaskSync::new(owed);
        let mut member = Self {
            name,
            workspace,
            team,
            id,
            logs,
            deliveries,
            line: Some(line),
            opened_at: Utc::now(),
            sync,
            post,
            workers,
            shared,
        };
        member.announce();
        member.go_on();
        member
    }

    /// Takes in something that happened beside the mailbox.
    ///
    /// # Errors
    /// When a log has ended: the next incarnation opens it anew.
    pub(crate) fn handle(&mut self, event: MemberEvent) -> Result<(), Fault> {
        match event {
            MemberEvent::Written => {}
            MemberEvent::Failed(error) => return Err(error.into()),
            MemberEvent::Kept(task_id) => self.kept(task_id),
            MemberEvent::Delivered { number, acked } => self.delivered(number, acked),
            MemberEvent::Sync(event) => self.on_sync(event),
        }
        self.serve();
        self.announce();
        self.go_on();
        Ok(())
    }

    /// Puts a message into the inbox. It is there when the answer says that it is written.
    ///
    /// # Errors
    /// `inbox_full`, `busy`, `actor_unavailable`.
    pub(crate) fn put(&self, message: &Arc<Message>) -> Result<WhenWritten, ToolError> {
        let log = self.logs.inbox.as_ref().map_err(ToolError::clone)?;
        let options = &self.shared.options;
        let bounds = inbox::InboxBounds {
            messages: options.inbox_messages,
            bytes: options.inbox_mb * 1024 * 1024,
        };
        let event = self.event(
            "message.put",
            json!({
                "message_id": message.id, "from": message.from, "to": message.to,
                "message_type": message.kind, "bytes": message.content.len(),
            }),
        );
        let put = |inbox: Option<&Inbox>| {
            let room = inbox.unwrap_or(&Inbox::default()).room(bounds, message);
            room.map_err(|full| refuse::inbox_full(&self.name, full))?;
            Ok(Decision::record(inbox::Record::Put(message.clone())).event(event))
        };
        self.decide(log, put, MemberEvent::Written, "mailbox.after_put")
    }

    /// Assigns a task, unless it is known. That it stands so is certain when the answer says that
    /// it is written.
    ///
    /// # Errors
    /// `task_differs`, `inbox_full`, `busy`, `actor_unavailable`.
    pub(crate) fn assign(&self, task: &Arc<Task>) -> Result<(Stand, WhenWritten), ToolError> {
        let log = self.logs.tasks.as_ref().map_err(ToolError::clone)?;
        let bounds = self.task_bounds();
        let event = self.event(
            "task.assigned",
            json!({ "task_id": task.work.task_id, "message_id": task.message, "from": task.from }),
        );
        let mut stand = Stand::New;
        let assign = |ledger: Option<&TaskLedger>| {
            let admitted = ledger.unwrap_or(&TaskLedger::default()).admit(bounds, task);
            stand = admitted.map_err(|refused| match refused {
                TaskRefused::Differs => refuse::task_differs(&self.name, &task.work.task_id),
                TaskRefused::Full { tasks, bytes } => {
                    refuse::too_many_tasks(&self.name, tasks, bytes)
                }
            })?;
            Ok(match stand {
                Stand::New => Decision::record(ledger::Record::Assigned(task.clone())).event(event),
                _ => Decision::nothing(),
            })
        };
        let written = self.decide(log, assign, MemberEvent::Written, "task.after_assigned")?;
        Ok((stand, written))
    }

    /// Takes out what the receiver has: these messages, and the results of tasks that these messages
    /// assigned. Says how many of them there were; they are gone when the answers say that it is
    /// written.
    ///
    /// # Errors
    /// `busy`, or when a log has ended.
    pub(crate) fn confirm(
        &mut self,
        ids: &BTreeSet<MessageId>,
    ) -> Result<(usize, [Option<WhenWritten>; 2]), ToolError> {
        let (messages, first) = self.take_messages(ids)?.unzip();
        let (results, second) = self.take_results(ids)?.unzip();
        self.serve();
        self.announce();
        self.go_on();
        Ok((messages.unwrap_or(0) + results.unwrap_or(0), [first, second]))
    }

    /// Gives a receiver what there is, in its turn.
    pub(crate) fn receive(&mut self, request: Request) {
        if request.limit == 0 {
            // Whoever asked may have gone.
            return drop(request.reply.send(self.deliver(0)));
        }
        self.deliveries.join(request, self.shared.options.inbox_receivers, &self.name);
        self.serve();
    }

    /// Ids of the messages in the inbox, the oldest first.
    pub(crate) fn messages(&self) -> Option<Vec<MessageId>> {
        let ids =
            |decided: &Inbox, durable: &Inbox| decided.deliverable(durable).map(Item::id).collect();
        self.logs.inbox.is_ok().then(|| views(&self.logs.inbox, ids))
    }

    /// Counts what it has to do; `None` when that is not known.
    pub(crate) fn load(&self) -> Option<Load> {
        let count = |decided: &TaskLedger, durable: &TaskLedger| {
            (durable.pending(), decided.results().deliverable(durable.results()).count())
        };
        let (pending, results) = views(&self.logs.tasks, count);
        let (running, trouble) = (self.sync.running.min(pending), self.sync.trouble.clone());
        self.logs.tasks.is_ok().then_some(Load { pending, running, results, trouble })
    }

    /// Another session operates its team.
    pub(crate) fn hand_over(&mut self, owner: SessionId) {
        self.line.iter_mut().for_each(|line| line.hand_over(owner));
    }

    /// Its team is going to be removed: nothing of it is announced any more.
    pub(crate) fn retire(&mut self) {
        self.line = None;
    }

    /// Tells the board what waits and is not under way.
    fn announce(&mut self) {
        let Some(line) = &mut self.line else { return };
        let (deliveries, opened_at) = (&self.deliveries, self.opened_at);
        let messages = views(&self.logs.inbox, |decided, durable| {
            let waits = decided.deliverable(durable).filter(|it| !deliveries.under_way(&it.id));
            let oldest = waits.clone().next().map(|it| (it.from.clone(), it.at));
            Queue { count: waits.count(), oldest }
        });
        let results = views(&self.logs.tasks, |decided: &TaskLedger, durable| {
            let there = decided.results().deliverable(durable.results());
            let waits = there.filter(|it| !deliveries.under_way(&it.message));
            let since = |it: &Arc<StoredResult>| it.at.unwrap_or(opened_at);
            let oldest = waits.clone().next().map(|it| (self.name.clone(), since(it)));
            Queue { count: waits.count(), oldest }
        });
        line.write([messages, results]);
    }

    fn serve(&mut self) {
        while self.deliveries.asked() {
            let any = self.any();
            let Some(request) = self.deliveries.next(any) else { return };
            // A delivery that nobody takes comes back by being dropped.
            drop(request.reply.send(self.deliver(request.limit)));
        }
    }

    fn any(&self) -> bool {
        views(&self.logs.inbox, |decided, durable| decided.deliverable(durable).next().is_some())
            || views(&self.logs.tasks, |decided, durable| {
                decided.results().deliverable(durable.results()).next().is_some()
            })
    }

    fn deliver(&mut self, limit: usize) -> Result<Delivery, ToolError> {
        let unavailable = match (&self.logs.inbox, &self.logs.tasks) {
            (Ok(_), Ok(_)) => None,
            (Err(error), Err(_)) => return Err(error.clone()),
            (Err(error), Ok(_)) => Some(("messages", error)),
            (Ok(_), Err(error)) => Some(("daemon_results", error)),
        };
        let unavailable = unavailable.map(|(what, error)| api::Unavailable {
            what: what.to_owned(),
            error: error.message.clone(),
        });
        let (messages, messages_left) = views(&self.logs.inbox, |decided, durable| {
            let there = decided.deliverable(durable);
            let picked = pick(there.clone(), limit, MESSAGES_BYTES);
            let left = there.count() - picked.len();
            (picked, left)
        });
        let (results, results_left, pending) = views(&self.logs.tasks, |decided, durable| {
            let there = decided.results().deliverable(durable.results());
            let picked = pick(there.clone(), limit, RESULTS_BYTES);
            let left = there.count() - picked.len();
            (picked, left, durable.pending())
        });
        let lease =
            (!messages.is_empty() || !results.is_empty()).then(|| self.lease(&messages, &results));
        // Before whoever receives has it.
        self.announce();
        let messages = messages.into_iter().map(|item| self.deliveries.of(item)).collect();
        let results = results.into_iter().map(|item| self.deliveries.of(item)).collect();
        Ok(Delivery { messages, results, messages_left, results_left, pending, unavailable, lease })
    }

    fn lease<A: Item, B: Item>(&mut self, messages: &[A], results: &[B]) -> Lease {
        let number = self.shared.next_delivery();
        let messages = messages.iter().map(Item::id).collect();
        let results = results.iter().map(Item::id).collect();
        self.deliveries.begin(InFlight { number, messages, results });
        let post = self.post.clone();
        // A team that was restarted has no such delivery.
        let end = move |number, acked| drop(post(MemberEvent::Delivered { number, acked }));
        Lease { number, acked: false, end: Box::new(end) }
    }

    fn delivered(&mut self, number: u64, acked: bool) {
        let Some(InFlight { messages, results, .. }) = self.deliveries.end(number, acked) else {
            return;
        };
        if !acked {
            return;
        }
        if !messages.is_empty() {
            fault_point!("mailbox.before_taken");
        }
        // Not taken, they are delivered again.
        drop(self.take_messages(&messages));
        if !results.is_empty() {
            fault_point!("task.before_taken");
        }
        drop(self.take_results(&results));
    }

    fn take_messages(
        &mut self,
        ids: &BTreeSet<MessageId>,
    ) -> Result<Option<(usize, WhenWritten)>, ToolError> {
        self.deliveries.gone(ids);
        let event =
            |gone: &[MessageId]| self.event("message.taken", json!({ "message_ids": gone }));
        take(&self.logs.inbox, ids, |inbox| inbox, inbox::Record::Taken, event)
    }

    fn take_results(
        &mut self,
        ids: &BTreeSet<MessageId>,
    ) -> Result<Option<(usize, WhenWritten)>, ToolError> {
        self.deliveries.gone(ids);
        let event = |gone: &[MessageId]| self.event("task.taken", json!({ "message_ids": gone }));
        let record = |gone: Vec<MessageId>| ledger::Record::Taken(gone.into_iter().collect());
        take(&self.logs.tasks, ids, TaskLedger::results, record, event)
    }

    /// Decides. When that is durable, the member is told by an event, and whoever has the answer.
    fn decide<S: Sourced>(
        &self,
        log: &Log<S>,
        decide: impl FnOnce(Option<&S>) -> Result<Decision<S::Record>, ToolError>,
        event: MemberEvent,
        point: &'static str,
    ) -> Result<WhenWritten, ToolError> {
        let (answer, answered) = oneshot::channel();
        let post = self.post.clone();
        let then = move |outcome: Result<(), LogError>| {
            if outcome.is_ok() {
                fault_point!(point);
            }
            let event =
                outcome.as_ref().map_or_else(|e| MemberEvent::Failed(e.clone()), |()| event);
            // A team that is gone is followed by one that looks; whoever asked may have gone, too.
            drop((post(event), answer.send(outcome)));
        };
        log.decide_then(decide, then)?;
        Ok(async { answered.await.expect("a decision has an outcome") }.boxed())
    }

    fn task_bounds(&self) -> LedgerBounds {
        let options = &self.shared.options;
        let bytes = options.inbox_mb * 1024 * 1024 / PART;
        LedgerBounds { tasks: options.inbox_messages, bytes }
    }

    /// An event of this member's.
    fn event(&self, kind: &str, mut data: Value) -> NewEvent {
        data["member"] = json!(self.name);
        data["session"] = json!(self.team.views(|team, _| team.map(|team| team.owner)));
        NewEvent { kind: kind.to_owned(), subject: self.id.to_string(), data }
    }
}
