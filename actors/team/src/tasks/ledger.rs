//! The ledger of a member's tasks: each without a result, with one that waits, or remembered. Pure.
//!
//! ```text
//!  admit ─► assigned ─► conclude ─► ended ─► taken ─► known
//! ```
//! Its records move it, in the stream `desk/<team id>_<number of the member>`. A record is JSON; a
//! snapshot is the records of what there is, each after its length. Whether a guest has a task is
//! not recorded: it is put again after a start, which changes nothing in its guest.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId};
use hivekeep_ports::TaskResult;
use hivekeep_runtime::log::{self, Sourced};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use super::{
    Task,
    result::{Known, StoredResult},
};
use crate::inbox::{self, Inbox};

/// The weight of a task beside what was sent.
const ENVELOPE_BYTES: usize = 512;
/// The most that a result takes, written down: two streams of 16 KiB, each byte as six, and the
/// rest.
const LARGEST_RESULT_BYTES: usize = 220 * 1024;
/// Results that are asked of a guest at a time.
const MOST_RESULTS: usize = 20;

/// The stream of a team's member.
pub fn stream(team: TeamId, member: usize) -> StreamId {
    let id = format!("{team}_{member}");
    log::stream::<TaskLedger>(id).expect("an id and a number have only letters, digits and `_`")
}

/// Record of a task ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A task came.
    Assigned(#[serde(with = "shared")] Arc<Task>),
    /// A task has a result.
    Ended(#[serde(with = "shared")] Arc<StoredResult>),
    /// Results were received; named by the messages that assigned their tasks.
    Taken(BTreeSet<MessageId>),
    /// In a snapshot: a result that was received.
    Known(#[serde(with = "shared")] Arc<StoredResult>),
}

/// A value behind an [`Arc`], written as the value.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub(super) fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// The size of a ledger.
#[derive(Debug, Clone, Copy)]
pub struct LedgerBounds {
    /// Tasks without a result, and results that wait.
    pub tasks: usize,
    /// Bytes of the former, and of the latter.
    pub bytes: usize,
}

/// The standing of a task for somebody who assigns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// New: recorded now.
    New,
    /// Known, and without a result.
    Pending,
    /// Known, with its result. The flag says whether that was received.
    Done(Arc<StoredResult>, bool),
}

/// A task that is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRefused {
    /// Another task has its id.
    Differs,
    /// There is no room.
    Full {
        /// Tasks without a result, and results that wait.
        tasks: usize,
        /// Bytes of the former.
        bytes: usize,
    },
}

#[derive(Debug, Clone)]
enum Place {
    /// A task without a result; its number among those.
    Open(u64),
    Waits(Arc<StoredResult>),
    Known,
}

/// All of a member's tasks.
#[derive(Debug, Clone, Default)]
pub struct TaskLedger {
    places: HashMap<String, Place>,
    /// Open tasks, in the order of their arrival.
    open: BTreeMap<u64, Arc<Task>>,
    arrivals: u64,
    open_bytes: usize,
    /// Results that wait to be received.
    results: Inbox<Arc<StoredResult>>,
    by_message: HashMap<MessageId, String>,
    known: Known,
}

impl TaskLedger {
    /// Looks whether a task may be assigned. A new one is to be recorded.
    ///
    /// # Errors
    /// Another task has its id, or there is no room.
    pub fn admit(&self, bounds: LedgerBounds, task: &Task) -> Result<Stand, TaskRefused> {
        let same = |known: &str, stand| {
            if known == task.work.print() { Ok(stand) } else { Err(TaskRefused::Differs) }
        };
        let task_id = &task.work.task_id;
        match self.places.get(task_id) {
            Some(Place::Open(at)) => {
                if let Some(open) = self.open.get(at) {
                    return same(&open.work.print(), Stand::Pending);
                }
            }
            Some(Place::Waits(result)) => {
                return same(&result.print, Stand::Done(result.clone(), false));
            }
            Some(Place::Known) => {
                if let Some(result) = self.known.get(task_id) {
                    return same(&result.print, Stand::Done(result.clone(), true));
                }
            }
            None => {}
        }
        let (tasks, bytes) = (self.open.len() + self.results.len(), self.open_bytes);
        if tasks >= bounds.tasks || bytes + weight(task) > bounds.bytes {
            return Err(TaskRefused::Full { tasks, bytes });
        }
        Ok(Stand::New)
    }

    /// The result of a task, to be recorded; `None` unless it is without one.
    pub fn conclude(
        &self,
        task_id: &str,
        result: TaskResult,
        at: DateTime<Utc>,
    ) -> Option<Arc<StoredResult>> {
        let task = self.find(task_id)?;
        Some(Arc::new(StoredResult::new(task, result, at)))
    }

    /// Number of results that may be fetched: they wait in the guest as long as there is no room.
    pub fn room(&self, bounds: LedgerBounds) -> usize {
        let left = bounds.bytes.saturating_sub(self.results.bytes());
        if left == 0 { 0 } else { (left / LARGEST_RESULT_BYTES).clamp(1, MOST_RESULTS) }
    }

    /// True when a task is without a result.
    pub fn is_open(&self, task_id: &str) -> bool {
        self.find(task_id).is_some()
    }

    /// True when the host has the task's result.
    pub fn is_done(&self, task_id: &str) -> bool {
        matches!(self.places.get(task_id), Some(Place::Waits(_) | Place::Known))
    }

    /// Tasks without a result, in the order of their arrival.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.open.values()
    }

    /// Number of tasks without a result.
    pub fn pending(&self) -> usize {
        self.open.len()
    }

    /// Results that wait to be received.
    pub fn results(&self) -> &Inbox<Arc<StoredResult>> {
        &self.results
    }

    /// All results: those that wait, and those that are remembered.
    pub fn done(&self) -> impl Iterator<Item = &Arc<StoredResult>> {
        self.results.items().chain(self.known.all())
    }

    /// Results that were received, as far as they are remembered; the oldest first.
    fn known(&self) -> impl Iterator<Item = &Arc<StoredResult>> {
        self.known.all()
    }

    /// A task came.
    fn assigned(&mut self, task: Arc<Task>) {
        if !self.places.contains_key(&task.work.task_id) {
            self.arrivals += 1;
            self.open_bytes += weight(&task);
            self.places.insert(task.work.task_id.clone(), Place::Open(self.arrivals));
            self.open.insert(self.arrivals, task);
        }
    }

    /// A result came. One whose write was given up by an earlier version may be there twice.
    fn ended(&mut self, result: Arc<StoredResult>) {
        if self.is_done(&result.task_id) {
            return;
        }
        self.close(&result.task_id);
        self.places.insert(result.task_id.clone(), Place::Waits(result.clone()));
        self.by_message.insert(result.message, result.task_id.clone());
        self.results.put(result);
    }

    /// Results were received: they are nobody's to be given any more.
    fn taken(&mut self, messages: &BTreeSet<MessageId>) {
        self.results.take(messages);
        for message in messages {
            let task_id = self.by_message.remove(message);
            let place = task_id.and_then(|task_id| self.places.get(&task_id));
            if let Some(Place::Waits(result)) = place {
                self.remember(result.clone());
            }
        }
    }

    /// A result that was received is in a snapshot.
    fn remembered(&mut self, result: Arc<StoredResult>) {
        self.close(&result.task_id);
        self.remember(result);
    }

    fn find(&self, task_id: &str) -> Option<&Arc<Task>> {
        match self.places.get(task_id)? {
            Place::Open(at) => self.open.get(at),
            _ => None,
        }
    }

    fn close(&mut self, task_id: &str) {
        if let Some(Place::Open(at)) = self.places.get(task_id)
            && let Some(task) = self.open.remove(at)
        {
            self.open_bytes -= weight(&task);
        }
    }

    fn remember(&mut self, result: Arc<StoredResult>) {
        self.places.insert(result.task_id.clone(), Place::Known);
        for forgotten in self.known.add(result) {
            self.places.remove(&forgotten);
        }
    }
}

impl Sourced for TaskLedger {
    const KIND: &'static str = "desk";
    const FOLD_EVERY: usize = 512;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut ledger = Self::default();
        ledger.apply(record).map(|()| ledger)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Assigned(task) => self.assigned(task),
            Record::Ended(result) => self.ended(result),
            Record::Taken(messages) => self.taken(&messages),
            Record::Known(result) => self.remembered(result),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        let known = self.known().cloned().map(Record::Known);
        let waiting = self.results().items().cloned().map(Record::Ended);
        let tasks = self.open().cloned().map(Record::Assigned);
        inbox::snapshot(known.chain(waiting).chain(tasks))
    }

    fn unfold(bytes: &[u8]) -> Result<Self, String> {
        let mut ledger = Self::default();
        for record in inbox::snapshot_records(bytes)? {
            // Each of them follows.
            drop(ledger.apply(record));
        }
        Ok(ledger)
    }
}

fn weight(task: &Task) -> usize {
    ENVELOPE_BYTES + task.bytes
}

#[cfg(test)]
mod tests;
