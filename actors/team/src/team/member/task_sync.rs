//! Synchronisation of a member's tasks with its guest: tasks there, results back, acknowledgements
//! there. Each of these has one call under way at a time; what fails is begun again at the next
//! hint, at the latest after [`hivekeep_ports::TASK_POLL`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{ToolError, fault_point};
use hivekeep_ports::{TaskAssignment, TaskOutcome, TaskResult, TaskState, TaskTaken};
use hivekeep_runtime::log::Decision;
use serde_json::{Value, json};

use super::{
    LiveMember, MemberEvent,
    guest::{self, InGuest, Reading},
    views,
};
use crate::{
    codes,
    shared::OnBehalfOf,
    tasks::{
        Task,
        ledger::{self, TaskLedger},
        result::{StoredResult, without_run},
    },
};

/// Tasks that one worker puts, one after the other: in the order of their arrival.
const PUTS: usize = 16;
/// Results that are acknowledged together.
const ACKNOWLEDGED: usize = 500;
/// Time limit of the list of workspaces.
const LOOK: Duration = Duration::from_secs(30);

/// Something that came back from a guest, or about it.
pub(crate) enum TaskSyncEvent {
    /// Time to look, or to try again.
    Hint,
    /// The answer to the put of a task.
    Put(Arc<Task>, Result<TaskTaken, ToolError>),
    /// The worker that put tasks has ended.
    PutsOver,
    /// The guest's results.
    Read(Result<Reading, ToolError>),
    /// The answer to an acknowledgement of these results.
    Acknowledged(Vec<String>, Result<u32, ToolError>),
    /// True when the workspace still exists.
    Looked(Result<bool, ToolError>),
}

/// A call about a guest, of which each kind has one under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GuestCall {
    /// Hints; as long as the member lives.
    Watch,
    Put,
    Read,
    Acknowledge,
    /// Whether the workspace still exists.
    Look,
}

/// Calls to the guest that may be begun.
#[derive(Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// No put until there is room: there was none for a result that only a put returns.
    Crowded,
    /// No put and no acknowledgement until a hint: a call failed.
    HeldUp,
}

/// The reading of results after the present one.
#[derive(Debug, Default)]
struct NextReading {
    /// A reading is wanted; it begins when the present one is over, or there is room.
    wanted: bool,
    /// The number from which on results are read.
    after: u64,
    /// Results that are done here are awaited, too: the guest reported some that were not awaited.
    with_done: bool,
}

/// The state of the synchronisation.
#[derive(Debug, Default)]
pub(super) struct TaskSync {
    in_guest: InGuest,
    under_way: BTreeSet<GuestCall>,
    gate: Gate,
    next: NextReading,
    /// Kept results that were not acknowledged to the guest yet.
    owed: BTreeSet<String>,
    /// Number of running tasks, as the guest said last.
    pub(super) running: usize,
    /// The last failure.
    pub(super) trouble: Option<String>,
}

impl TaskSync {
    /// Begins with results of which the guest may not know that they are kept.
    pub(super) fn new(owed: Vec<String>) -> Self {
        Self { owed: owed.into_iter().collect(), ..Self::default() }
    }
}

impl LiveMember {
    /// Looks at the ledger with everything decided, and at the durable one.
    fn ledger<R>(&self, look: impl FnOnce(&TaskLedger, &TaskLedger) -> R) -> R {
        views(&self.logs.tasks, look)
    }

    fn pending(&self) -> usize {
        self.ledger(|_, durable| durable.pending())
    }

    fn room(&self) -> usize {
        let bounds = self.task_bounds();
        self.ledger(|decided, _| decided.room(bounds))
    }

    /// Has work done beside the mailbox, and its outcome posted back.
    fn begin(&self, work: impl Future<Output = TaskSyncEvent> + Send + 'static) {
        let post = self.post.clone();
        // A team that is gone is followed by one that begins again.
        let work = async move { drop(post(MemberEvent::Sync(work.await))) };
        let _detached = self.workers.spawn(work);
    }

    /// Begins whatever there is to do.
    pub(super) fn go_on(&mut self) {
        if self.pending() == 0 && self.sync.owed.is_empty() {
            return;
        }
        if self.sync.under_way.insert(GuestCall::Watch) {
            let (port, post) = (self.shared.tasks.clone(), self.post.clone());
            let hint = move || post(MemberEvent::Sync(TaskSyncEvent::Hint));
            let _detached = self.workers.spawn(guest::watch(port, self.workspace, hint));
        }
        if self.sync.gate != Gate::HeldUp {
            self.put_tasks();
            self.acknowledge();
        }
        if self.sync.next.wanted && !self.reading() {
            self.read();
        }
    }

    fn reading(&self) -> bool {
        self.sync.under_way.contains(&GuestCall::Read)
    }

    fn put_tasks(&mut self) {
        if self.sync.gate == Gate::Crowded && !self.reading() && self.room() > 0 {
            self.sync.gate = Gate::Open;
        }
        if self.sync.gate != Gate::Open || self.sync.under_way.contains(&GuestCall::Put) {
            return;
        }
        let tasks =
            self.ledger(|decided, durable| self.sync.in_guest.to_put(decided, durable, PUTS));
        if tasks.is_empty() {
            return;
        }
        self.sync.under_way.insert(GuestCall::Put);
        let (port, post, id) = (self.shared.tasks.clone(), self.post.clone(), self.workspace);
        self.begin(async move {
            for task in tasks {
                let outcome = port.put(id, assignment(&task)).await;
                fault_point!("task.after_put");
                let stop = outcome.as_ref().is_err_and(|error| !is_final(error));
                // A team that is gone is followed by one that puts them again.
                let told = post(MemberEvent::Sync(TaskSyncEvent::Put(task, outcome)));
                if stop || told.is_err() {
                    break;
                }
            }
            TaskSyncEvent::PutsOver
        });
    }

    fn read(&mut self) {
        let (room, pending) = (self.room(), self.pending());
        self.sync.next.wanted = pending > 0 && (self.reading() || room == 0);
        if self.sync.next.wanted || pending == 0 {
            return;
        }
        self.sync.under_way.insert(GuestCall::Read);
        let NextReading { after, with_done, .. } = std::mem::take(&mut self.sync.next);
        let in_guest = &mut self.sync.in_guest;
        let awaited = views(&self.logs.tasks, |_, durable: &TaskLedger| {
            in_guest.begin_reading(durable, with_done)
        });
        let (port, id) = (self.shared.tasks.clone(), self.workspace);
        self.begin(async move {
            TaskSyncEvent::Read(guest::read(port.as_ref(), id, after, room, &awaited).await)
        });
    }

    fn acknowledge(&mut self) {
        if self.sync.owed.is_empty() || !self.sync.under_way.insert(GuestCall::Acknowledge) {
            return;
        }
        let ids: Vec<_> = self.sync.owed.iter().take(ACKNOWLEDGED).cloned().collect();
        let (port, id) = (self.shared.tasks.clone(), self.workspace);
        self.begin(async move {
            let outcome = port.acknowledge(id, ids.clone()).await;
            fault_point!("task.after_acknowledged");
            TaskSyncEvent::Acknowledged(ids, outcome)
        });
    }

    pub(super) fn on_sync(&mut self, event: TaskSyncEvent) {
        match event {
            TaskSyncEvent::Hint => {
                if self.sync.gate == Gate::HeldUp {
                    self.sync.gate = Gate::Open;
                }
                self.read();
            }
            TaskSyncEvent::Put(task, outcome) => self.was_put(&task, outcome),
            TaskSyncEvent::PutsOver => {
                self.sync.under_way.remove(&GuestCall::Put);
            }
            TaskSyncEvent::Read(outcome) => {
                self.sync.under_way.remove(&GuestCall::Read);
                match outcome {
                    Ok(reading) => self.take_in(reading),
                    Err(error) => self.failed(&error),
                }
            }
            TaskSyncEvent::Acknowledged(ids, outcome) => {
                self.sync.under_way.remove(&GuestCall::Acknowledge);
                match outcome {
                    Ok(_) => self.sync.owed.retain(|id| !ids.contains(id)),
                    Err(error) => self.failed(&error),
                }
            }
            TaskSyncEvent::Looked(outcome) => {
                self.sync.under_way.remove(&GuestCall::Look);
                if let Ok(false) = outcome {
                    self.give_up();
                }
            }
        }
    }

    /// A result is durable here: its guest need not keep it any more.
    pub(super) fn kept(&mut self, task_id: String) {
        self.sync.in_guest.ended(&task_id);
        self.sync.owed.insert(task_id);
    }

    fn was_put(&mut self, task: &Task, outcome: Result<TaskTaken, ToolError>) {
        let task_id = &task.work.task_id;
        match outcome {
            // Only a result says which message it is of: a guest of another build may compare tasks
            // differently.
            Ok(TaskTaken { differs: true, result: Some(result), .. })
                if result.message_id != task.message.to_string() =>
            {
                let code = codes::TASK_DIFFERS.name.to_owned();
                let reason = "the guest has run another task of this id, before those that are \
                              remembered here"
                    .to_owned();
                self.conclude(without_run(task_id, TaskOutcome::Invalid { code, reason }));
            }
            Ok(TaskTaken { result: Some(result), state, .. }) => {
                // A reading has taken room for its results; a result returned by a put has none of it.
                if !self.reading() && self.room() > 0 {
                    self.conclude(TaskResult { task_id: task_id.clone(), ..result });
                } else if state == TaskState::Done && result.message_id == task.message.to_string()
                {
                    // The result waits in the guest for a reading, which begins when there is room.
                    self.is_put(task);
                    self.read();
                } else if self.sync.gate == Gate::Open {
                    // No reading returns the result: the task is put once more.
                    self.sync.gate = Gate::Crowded;
                }
            }
            Ok(_) => self.is_put(task),
            Err(error) if is_final(&error) => {
                let (code, reason) = (error.code.to_string(), error.message);
                self.conclude(without_run(task_id, TaskOutcome::Invalid { code, reason }));
            }
            Err(error) => self.failed(&error),
        }
    }

    fn is_put(&mut self, task: &Task) {
        self.sync.trouble = None;
        let (in_guest, task_id) = (&mut self.sync.in_guest, &task.work.task_id);
        if views(&self.logs.tasks, |decided, _| in_guest.put(decided, task_id)) {
            let data = json!({ "task_id": task_id, "message_id": task.message });
            let event = self.event("task.put", data);
            let _lost_is_counted = self.shared.events.publish_later(event);
        }
    }

    fn take_in(&mut self, reading: Reading) {
        let Reading { results, queued, running, stale, dropped, cut } = reading;
        self.sync.trouble = None;
        self.sync.running = running;
        self.sync.next.with_done = dropped > 0;
        for result in results {
            if self.ledger(|_, durable| durable.is_done(&result.task_id)) {
                self.sync.owed.insert(result.task_id);
            } else {
                self.conclude(result);
            }
        }
        if let Some(after) = cut {
            (self.sync.next.wanted, self.sync.next.after) = (true, after);
        } else if !stale {
            let in_guest = &mut self.sync.in_guest;
            let missing = views(&self.logs.tasks, |decided, _| {
                in_guest.end_reading(decided, queued + running)
            });
            if missing > 0 {
                tracing::info!(member = %self.name, missing, "its guest has lost tasks: they are put again");
            }
        }
    }

    /// Records the result of a task, unless it has one.
    fn conclude(&mut self, result: TaskResult) {
        let Ok(log) = &self.logs.tasks else { return };
        let task_id = result.task_id.clone();
        let concluded = self.ledger(|decided, _| decided.conclude(&task_id, result, Utc::now()));
        let Some(stored) = concluded else { return };
        fault_point!("task.before_kept");
        let event = self.event("task.ended", ended(&stored));
        let record =
            move |_: Option<&_>| Ok(Decision::record(ledger::Record::Ended(stored)).event(event));
        // A result that is not recorded is reported again: by its guest, or at the team's next start.
        drop(self.decide(log, record, MemberEvent::Kept(task_id), "task.after_kept"));
    }

    /// Notes a failed call. Nothing is lost: the call is made again.
    fn failed(&mut self, error: &ToolError) {
        self.sync.gate = Gate::HeldUp;
        self.sync.running = 0;
        self.sync.trouble = Some(error.to_text());
        if error.is(codes::WORKSPACE_NOT_FOUND) && self.sync.under_way.insert(GuestCall::Look) {
            let (shared, id, workspace) = (self.shared.clone(), self.id, self.workspace);
            let owner = self.team.view(|team| team.map(|team| team.owner));
            self.begin(async move {
                // Believed only of a list: while workspaces are being taken up at a start, none is
                // found.
                let Some(owner) = owner else { return TaskSyncEvent::Looked(Ok(true)) };
                let rows = shared.tools.workspaces(id, &OnBehalfOf::own(owner, LOOK)).await;
                let there = rows.map(|rows| rows.iter().any(|row| row.workspace_id == workspace));
                TaskSyncEvent::Looked(there)
            });
        }
    }

    /// The workspace is gone, with all that its guest knew.
    fn give_up(&mut self) {
        self.sync.owed.clear();
        let open = |decided: &TaskLedger, _: &TaskLedger| {
            decided.open().map(|task| task.work.task_id.clone()).collect::<Vec<_>>()
        };
        for task_id in self.ledger(open) {
            self.conclude(without_run(&task_id, TaskOutcome::Lost));
        }
    }
}

fn ended(stored: &StoredResult) -> Value {
    let mut data = json!({
        "task_id": stored.task_id, "message_id": stored.message,
        "outcome": stored.outcome.word(), "elapsed_ms": stored.capture.elapsed_ms,
    });
    match &stored.outcome {
        TaskOutcome::Exited { exit_code } => data["exit_code"] = json!(exit_code),
        TaskOutcome::Signalled { signal } => data["signal"] = json!(signal),
        TaskOutcome::Invalid { code, .. } => data["code"] = json!(code),
        _ => {}
    }
    data
}

fn assignment(task: &Task) -> TaskAssignment {
    let work = task.work.clone();
    TaskAssignment {
        message_id: task.message.to_string(),
        task_id: work.task_id,
        command: work.command,
        workdir: work.workdir,
        env: work.env,
        timeout_secs: work.timeout_secs,
    }
}

/// True when a task will be refused whenever it is put.
fn is_final(error: &ToolError) -> bool {
    error.is_any(&[codes::INVALID_INPUT, codes::TOO_LARGE])
}
