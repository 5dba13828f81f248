//! The ways between a desk and its guest: tasks there, results back, acknowledgements there. Each
//! has one thing under way at a time; what fails is begun again at the next hint.

mod hints;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hivekeep_kernel::{
    ToolError, WorkspaceId, fault_point,
    ports::{TaskAssignment, TaskResult, TaskState, TaskTaken, Tasks},
};
use serde_json::json;

use super::{
    Msg, TaskQueue,
    ledger::{Ended, Outcome, Task},
    write::Entry,
};
use crate::codes;
use crate::shared::{OnBehalfOf, TeamShared};

/// Tasks that one worker puts, one after the other: in the order of their arrival.
const PUTS: usize = 16;
/// Acknowledged together.
const ACKNOWLEDGED: usize = 500;
/// Pages of one reading; a guest has not more results than these hold.
const PAGES: usize = 60;
/// For the list of workspaces.
const LOOK: Duration = Duration::from_secs(30);
/// What comes back.
pub(crate) enum News {
    /// It may be worth looking, or trying again.
    Hint,
    /// Of one task.
    Put(Arc<Task>, Result<TaskTaken, ToolError>),
    /// The worker that put tasks has ended.
    PutsOver,
    /// Of the guest's results.
    Read(Result<Reading, ToolError>),
    /// Of these results, that they are kept.
    Acknowledged(Vec<String>, Result<u32, ToolError>),
    /// Whether the workspace is among those that there are.
    Looked(Result<bool, ToolError>),
}

/// What a guest told.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    results: Vec<TaskResult>,
    queued: usize,
    running: usize,
    /// These are of before: its last page was not asked for.
    stale: bool,
    /// Results that nobody here awaits.
    dropped: u32,
    /// Some were left, beyond this number.
    cut: Option<u64>,
}

/// How far each way is.
#[derive(Debug, Default)]
pub(super) struct TaskSync {
    watching: bool,
    putting: bool,
    reading: bool,
    acknowledging: bool,
    looking: bool,
    /// Read once more when the present reading is over, or there is room.
    again: bool,
    /// From where on results are read.
    after: u64,
    /// Something failed: wait for a hint.
    held_up: bool,
    /// A result that only a put tells had no room: nothing is put until there is some.
    crowded: bool,
    /// The guest told results that were not awaited.
    strangers: bool,
    /// Results whose guest was not told yet that they are kept.
    owed: BTreeSet<String>,
    /// As the guest said last.
    pub(super) running: usize,
    /// What failed last.
    pub(super) trouble: Option<String>,
}

impl TaskSync {
    /// With results of which the guest may not know that they are kept.
    pub(super) fn new(owed: Vec<String>) -> Self {
        Self { owed: owed.into_iter().collect(), ..Self::default() }
    }

    pub(super) fn owe(&mut self, task_id: String) {
        self.owed.insert(task_id);
    }
}

impl TaskQueue {
    /// Begins whatever there is to do.
    pub(super) fn go_on(&mut self) {
        if self.closed || (self.ledger.pending() == 0 && self.lanes.owed.is_empty()) {
            return;
        }
        if !std::mem::replace(&mut self.lanes.watching, true) {
            let (port, desk) = (self.seed.house.tasks.clone(), self.me.address.clone());
            let _detached = self.me.workers.spawn(hints::watch(port, self.seed.workspace, desk));
        }
        if !self.lanes.held_up {
            self.put();
            self.acknowledge();
        }
        if self.lanes.again && !self.lanes.reading {
            self.read();
        }
    }

    fn put(&mut self) {
        self.lanes.crowded &= self.lanes.reading || self.ledger.room() == 0;
        if self.lanes.putting || self.lanes.crowded {
            return;
        }
        let tasks = self.ledger.to_put(PUTS);
        if tasks.is_empty() {
            return;
        }
        self.lanes.putting = true;
        let (port, desk, id) =
            (self.seed.house.tasks.clone(), self.me.address.clone(), self.seed.workspace);
        let _detached = self.me.workers.spawn(async move {
            for task in tasks {
                let outcome = port.put(id, assignment(&task)).await;
                fault_point!("task.after_put");
                let stop = outcome.as_ref().is_err_and(|error| !is_final(error));
                // A desk that is gone is followed by one that puts them again.
                let told = desk.send(Msg::News(News::Put(task, outcome)));
                if stop || told.is_err() {
                    break;
                }
            }
            let _ = desk.send(Msg::News(News::PutsOver));
        });
    }

    fn read(&mut self) {
        let room = self.ledger.room();
        self.lanes.again = self.ledger.pending() > 0 && (self.lanes.reading || room == 0);
        if self.lanes.again || self.ledger.pending() == 0 {
            return;
        }
        self.lanes.reading = true;
        let after = std::mem::take(&mut self.lanes.after);
        let sent = self.ledger.begin_reading(std::mem::take(&mut self.lanes.strangers));
        let (port, desk, id) =
            (self.seed.house.tasks.clone(), self.me.address.clone(), self.seed.workspace);
        let _detached = self.me.workers.spawn(async move {
            let outcome = read(port.as_ref(), id, after, room, &sent).await;
            let _ = desk.send(Msg::News(News::Read(outcome)));
        });
    }

    fn acknowledge(&mut self) {
        if self.lanes.acknowledging || self.lanes.owed.is_empty() {
            return;
        }
        self.lanes.acknowledging = true;
        let ids: Vec<_> = self.lanes.owed.iter().take(ACKNOWLEDGED).cloned().collect();
        let (port, desk, id) =
            (self.seed.house.tasks.clone(), self.me.address.clone(), self.seed.workspace);
        let _detached = self.me.workers.spawn(async move {
            let outcome = port.acknowledge(id, ids.clone()).await;
            fault_point!("task.after_acknowledged");
            let _ = desk.send(Msg::News(News::Acknowledged(ids, outcome)));
        });
    }

    pub(super) fn hear(&mut self, news: News) {
        if self.closed {
            return;
        }
        match news {
            News::Hint => {
                self.lanes.held_up = false;
                self.read();
            }
            News::Put(task, outcome) => self.was_put(&task, outcome),
            News::PutsOver => self.lanes.putting = false,
            News::Read(outcome) => {
                self.lanes.reading = false;
                match outcome {
                    Ok(reading) => self.take_in(reading),
                    Err(error) => self.failed(&error),
                }
            }
            News::Acknowledged(ids, outcome) => {
                self.lanes.acknowledging = false;
                match outcome {
                    Ok(_) => self.lanes.owed.retain(|id| !ids.contains(id)),
                    Err(error) => self.failed(&error),
                }
            }
            News::Looked(outcome) => {
                self.lanes.looking = false;
                if let Ok(false) = outcome {
                    self.give_up();
                }
            }
        }
        self.go_on();
    }

    fn was_put(&mut self, task: &Task, outcome: Result<TaskTaken, ToolError>) {
        let task_id = &task.work.task_id;
        match outcome {
            // Whose it is, only a result says: what a guest of another build thinks of the task
            // does not count.
            Ok(TaskTaken { differs: true, result: Some(result), .. })
                if result.message_id != task.message.to_string() =>
            {
                let reason = "the guest has run another task of this id, before those that are \
                              remembered here";
                let invalid = Outcome::Invalid {
                    code: codes::TASK_DIFFERS.name.to_owned(),
                    reason: reason.to_owned(),
                };
                self.conclude(task_id, Ended::without_run(invalid));
            }
            Ok(TaskTaken { result: Some(result), state, .. }) => {
                // What a reading brings has its room already; a result told here has none of it.
                if !self.lanes.reading && self.ledger.room() > 0 {
                    self.conclude(task_id, result.into());
                } else if state == TaskState::Done && result.message_id == task.message.to_string()
                {
                    // It waits in the guest for a reading, which there is when there is room.
                    self.is_put(task);
                    self.read();
                } else {
                    // No reading tells it: it is put once more.
                    self.lanes.crowded = true;
                }
            }
            Ok(_) => self.is_put(task),
            Err(error) if is_final(&error) => {
                let (code, reason) = (error.code.to_string(), error.message);
                self.conclude(task_id, Ended::without_run(Outcome::Invalid { code, reason }));
            }
            Err(error) => self.failed(&error),
        }
    }

    fn is_put(&mut self, task: &Task) {
        self.lanes.trouble = None;
        if self.ledger.put(&task.work.task_id) {
            let data = json!({ "task_id": task.work.task_id, "message_id": task.message });
            let event = self.pen.event("task.put", data);
            let _lost_is_counted = self.seed.house.events.publish_later(event);
        }
    }

    fn take_in(&mut self, reading: Reading) {
        let Reading { results, queued, running, stale, dropped, cut } = reading;
        self.lanes.trouble = None;
        self.lanes.running = running;
        self.lanes.strangers = dropped > 0;
        for result in results {
            let task_id = result.task_id.clone();
            if self.ledger.is_done(&task_id) {
                self.lanes.owe(task_id);
            } else {
                self.conclude(&task_id, result.into());
            }
        }
        if let Some(after) = cut {
            (self.lanes.again, self.lanes.after) = (true, after);
        } else if !stale {
            let missing = self.ledger.end_reading(queued + running);
            if missing > 0 {
                tracing::info!(member = %self.seed.member, missing, "its guest has lost tasks: they are put again");
            }
        }
    }

    fn conclude(&mut self, task_id: &str, ended: Ended) {
        if let Some(kept) = self.ledger.conclude(task_id, ended) {
            fault_point!("task.before_kept");
            self.write(Entry::Ended(kept));
        }
    }

    /// Nothing is lost by it: whatever it was is done again.
    fn failed(&mut self, error: &ToolError) {
        self.lanes.held_up = true;
        self.lanes.running = 0;
        self.lanes.trouble = Some(error.to_text());
        if error.is(codes::WORKSPACE_NOT_FOUND) && !std::mem::replace(&mut self.lanes.looking, true)
        {
            let (seed, desk) = (self.seed.clone(), self.me.address.clone());
            let _detached = self.me.workers.spawn(async move {
                let there = is_there(&seed.house, &seed).await;
                let _ = desk.send(Msg::News(News::Looked(there)));
            });
        }
    }

    /// The workspace is gone, with all that its guest knew.
    fn give_up(&mut self) {
        self.lanes.owed.clear();
        for task_id in self.ledger.pending_ids() {
            self.conclude(&task_id, Ended::without_run(Outcome::Lost));
        }
    }
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

/// What will be refused whenever it is put.
fn is_final(error: &ToolError) -> bool {
    error.is_any(&[codes::INVALID_INPUT, codes::TOO_LARGE])
}

/// Believed only of a list: while workspaces are being taken up at a start, none is found.
async fn is_there(house: &Arc<TeamShared>, seed: &super::Seed) -> Result<bool, ToolError> {
    let rows = house.workspaces(seed.team, &OnBehalfOf::own(seed.owner, LOOK)).await?;
    Ok(rows.iter().any(|row| row.workspace_id == seed.workspace))
}

async fn read(
    port: &dyn Tasks,
    id: WorkspaceId,
    mut after: u64,
    room: usize,
    sent: &BTreeMap<String, String>,
) -> Result<Reading, ToolError> {
    let mut reading = Reading::default();
    for _ in 0..PAGES {
        let limit = u32::try_from(room - reading.results.len()).unwrap_or(u32::MAX);
        let page = port.results(id, after, limit, sent).await?;
        after = page.next_after;
        reading.queued = page.queued as usize;
        reading.running = page.running as usize;
        reading.stale = page.told;
        reading.dropped += page.dropped;
        reading.results.extend(page.results);
        reading.cut = page.more.then_some(after);
        if !page.more || reading.results.len() >= room {
            break;
        }
    }
    Ok(reading)
}
