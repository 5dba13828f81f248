//! What is known of a member's tasks, and what is to be done for them. Pure.
//!
//! ```text
//!  admit ─► (being written) ─► assigned ─► put ─► conclude ─► (being written) ─► kept
//!                                 ▲          │                                     │
//!                                 └─ missing ┘                 known ◄── taken ────┘
//! ```
//! Its changes are decided here, written down by the caller, and only then settled. That a task
//! was put is not written: it is put again after a start, which changes nothing in its guest.

mod known;
mod result;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::MessageId;
use serde::{Deserialize, Serialize};

pub use result::{Ended, Kept, Outcome};

use super::assignment::Assignment;
use crate::mailbox::book::{self, Book};
use known::Known;

/// What a task weighs beside what was sent.
const ENVELOPE_BYTES: usize = 512;
/// The most that a result takes, written down: two streams of 16 KiB, each byte as six, and the
/// rest.
const LARGEST_RESULT_BYTES: usize = 220 * 1024;
/// Results that are asked of a guest at a time.
const MOST_RESULTS: usize = 20;

/// A task that was assigned to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The message that assigned it.
    pub message: MessageId,
    /// The member that sent it.
    pub from: String,
    /// When.
    pub at: DateTime<Utc>,
    /// Bytes of the content it came as.
    pub bytes: usize,
    /// What is to be done.
    pub work: Assignment,
}

/// How much there may be.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Tasks without a result, and results that wait.
    pub tasks: usize,
    /// Bytes of the former, and of the latter.
    pub bytes: usize,
}

/// Where a task stands for somebody who assigns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// It was not known: it is written down now.
    New,
    /// It was known, and has no result.
    Pending,
    /// It was known, and this became of it. The flag says whether that was received.
    Done(Arc<Kept>, bool),
}

/// A task that is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its id is that of another task.
    Differs,
    /// There is no room.
    Full {
        /// Tasks without a result, and results that wait.
        tasks: usize,
        /// Bytes of the former.
        bytes: usize,
    },
}

/// What a snapshot holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Durable {
    /// Tasks without a result.
    pub tasks: Vec<Arc<Task>>,
    /// Results that wait to be received.
    pub waiting: Vec<Arc<Kept>>,
    /// Results that were received.
    pub known: Vec<Arc<Kept>>,
}

#[derive(Debug, Clone)]
struct Open {
    task: Arc<Task>,
    print: String,
    durable: bool,
    /// The guest has it: the reading before which that was known.
    put: Option<u64>,
    /// Its result is being written.
    ending: bool,
}

#[derive(Debug, Clone)]
enum Place {
    Open(u64),
    Waits(Arc<Kept>),
    Known,
}

/// All of a member's tasks.
#[derive(Debug, Clone)]
pub struct TaskLedger {
    bounds: Bounds,
    places: HashMap<String, Place>,
    /// In the order of their arrival.
    open: BTreeMap<u64, Open>,
    arrivals: u64,
    open_bytes: usize,
    /// Results that wait to be received.
    results: Book<Arc<Kept>>,
    by_message: HashMap<MessageId, String>,
    results_bytes: usize,
    known: Known,
    readings: u64,
}

impl TaskLedger {
    /// An empty one, whose loans are counted from a number on.
    pub fn new(bounds: Bounds, first_loan: u64) -> Self {
        let unbounded = book::Bounds { messages: usize::MAX, bytes: usize::MAX };
        Self {
            bounds,
            places: HashMap::new(),
            open: BTreeMap::new(),
            arrivals: 0,
            open_bytes: 0,
            results: Book::new(unbounded, first_loan),
            by_message: HashMap::new(),
            results_bytes: 0,
            known: Known::default(),
            readings: 0,
        }
    }

    /// Takes in a task of the journal.
    pub fn restore_task(&mut self, task: Arc<Task>) {
        if !self.places.contains_key(&task.work.task_id) {
            let print = task.work.print();
            self.open(task, print, true);
        }
    }

    /// Takes in a result of the journal, once: one whose write was given up may be there twice.
    /// Whether it was handed out is not known.
    pub fn restore_result(&mut self, kept: Arc<Kept>) {
        if self.is_done(&kept.task_id) {
            return;
        }
        self.close(&kept.task_id);
        self.results_bytes += kept.bytes;
        self.file(&kept);
        self.results.restore([kept]);
    }

    /// Takes in a result that was received.
    pub fn restore_known(&mut self, kept: Arc<Kept>) {
        self.close(&kept.task_id);
        self.remember(kept);
    }

    /// Looks whether a task may be assigned. A new one is to be written down, and then
    /// [`Self::arrive`]d.
    ///
    /// # Errors
    /// Then nothing changes.
    pub fn admit(&mut self, task: &Arc<Task>) -> Result<Stand, Refused> {
        let print = task.work.print();
        let same = |known: &str| if known == print { Ok(()) } else { Err(Refused::Differs) };
        match self.places.get(&task.work.task_id) {
            Some(Place::Open(at)) => {
                if let Some(open) = self.open.get(at) {
                    return same(&open.print).map(|()| Stand::Pending);
                }
            }
            Some(Place::Waits(kept)) => {
                return same(&kept.print).map(|()| Stand::Done(kept.clone(), false));
            }
            Some(Place::Known) => {
                if let Some(kept) = self.known.get(&task.work.task_id) {
                    return same(&kept.print).map(|()| Stand::Done(kept.clone(), true));
                }
            }
            None => {}
        }
        let (tasks, bytes) = (self.open.len() + self.results.len(), self.open_bytes);
        if tasks >= self.bounds.tasks || bytes + weight(task) > self.bounds.bytes {
            return Err(Refused::Full { tasks, bytes });
        }
        self.open(task.clone(), print, false);
        Ok(Stand::New)
    }

    /// An admitted task is durable.
    pub fn arrive(&mut self, task_id: &str) {
        if let Some(open) = self.find(task_id) {
            open.durable = true;
        }
    }

    /// The first that the guests has to be given, at most so many, in the order of their arrival.
    pub fn to_put(&self, most: usize) -> Vec<Arc<Task>> {
        let waits = |open: &&Open| open.durable && open.put.is_none() && !open.ending;
        self.open.values().filter(waits).take(most).map(|open| open.task.clone()).collect()
    }

    /// The guest has it. Says whether that is news.
    pub fn put(&mut self, task_id: &str) -> bool {
        let readings = self.readings;
        self.find(task_id).is_some_and(|open| open.put.replace(readings).is_none())
    }

    /// Something is asked of the guest from now on. Of which tasks results are awaited, each with
    /// the message that assigned it; of those that have one, too, if wished.
    pub fn begin_reading(&mut self, with_known: bool) -> BTreeMap<String, String> {
        self.readings += 1;
        let open = self.open.values().filter(|open| open.durable);
        let pair = |id: &String, message: MessageId| (id.clone(), message.to_string());
        let mut sent: BTreeMap<_, _> =
            open.map(|open| pair(&open.task.work.task_id, open.task.message)).collect();
        if with_known {
            let known = self.results.held().chain(self.known.all());
            sent.extend(known.map(|kept| pair(&kept.task_id, kept.message)));
        }
        sent
    }

    /// A reading is over: of its tasks, those without a result are in the guest, where so many
    /// are. If there are more of them, the guest has lost some (it is a snapshot of before), and
    /// all are put again. Says how many.
    pub fn end_reading(&mut self, in_guest: usize) -> usize {
        let readings = self.readings;
        let put = |open: &&mut Open| !open.ending && open.put.is_some_and(|at| at < readings);
        if self.open.values_mut().filter(put).count() <= in_guest {
            return 0;
        }
        let missing = self.open.values_mut().filter(put);
        missing.map(|open| open.put = None).count()
    }

    /// How many results may be fetched: they wait in the guest as long as there is no room.
    pub fn room(&self) -> usize {
        let left = self.bounds.bytes.saturating_sub(self.results_bytes);
        if left == 0 { 0 } else { (left / LARGEST_RESULT_BYTES).clamp(1, MOST_RESULTS) }
    }

    /// What became of a task, to be written down and then [`Self::keep`]t; `None` when it has no
    /// task that waits for this.
    pub fn conclude(&mut self, task_id: &str, ended: Ended) -> Option<Arc<Kept>> {
        let open = self.find(task_id).filter(|open| open.durable && !open.ending)?;
        open.ending = true;
        let kept = Kept::new(&open.task, open.print.clone(), ended);
        self.results_bytes += kept.bytes;
        Some(Arc::new(kept))
    }

    /// A result is durable.
    pub fn keep(&mut self, kept: Arc<Kept>) {
        self.close(&kept.task_id);
        self.file(&kept);
        // Room is not the book's to know.
        let _unbounded = self.results.admit(&kept);
        self.results.arrive(kept);
    }

    /// Whether the host has its result.
    pub fn is_done(&self, task_id: &str) -> bool {
        matches!(self.places.get(task_id), Some(Place::Waits(_) | Place::Known))
    }

    /// A loan of results is over. Names what was taken.
    pub fn settle(&mut self, loan: u64, taken: bool) -> Vec<MessageId> {
        let gone = self.results.settle(loan, taken);
        self.received(&gone);
        gone
    }

    /// The receiver names what it has. Names those that waited.
    pub fn confirm(&mut self, ids: &BTreeSet<MessageId>) -> Vec<MessageId> {
        let gone = self.results.confirm(ids);
        self.received(&gone);
        gone
    }

    /// Results that wait.
    pub fn results(&mut self) -> &mut Book<Arc<Kept>> {
        &mut self.results
    }

    /// How many tasks have no result.
    pub fn pending(&self) -> usize {
        self.open.len()
    }

    /// Ids of those.
    pub fn pending_ids(&self) -> Vec<String> {
        self.open.values().map(|open| open.task.work.task_id.clone()).collect()
    }

    /// Ids of those that have one, as far as they are known.
    pub fn done_ids(&self) -> Vec<String> {
        let kept = self.results.held().chain(self.known.all());
        kept.map(|kept| kept.task_id.clone()).collect()
    }

    /// All that is durable.
    pub fn durable(&self) -> Durable {
        let open = self.open.values().filter(|open| open.durable).map(|open| open.task.clone());
        Durable {
            tasks: open.collect(),
            waiting: self.results.held().cloned().collect(),
            known: self.known.all().cloned().collect(),
        }
    }

    fn find(&mut self, task_id: &str) -> Option<&mut Open> {
        match self.places.get(task_id)? {
            Place::Open(at) => self.open.get_mut(at),
            _ => None,
        }
    }

    fn open(&mut self, task: Arc<Task>, print: String, durable: bool) {
        self.arrivals += 1;
        self.open_bytes += weight(&task);
        self.places.insert(task.work.task_id.clone(), Place::Open(self.arrivals));
        let open = Open { task, print, durable, put: None, ending: false };
        self.open.insert(self.arrivals, open);
    }

    fn close(&mut self, task_id: &str) {
        if let Some(Place::Open(at)) = self.places.get(task_id)
            && let Some(open) = self.open.remove(at)
        {
            self.open_bytes -= weight(&open.task);
        }
    }

    fn file(&mut self, kept: &Arc<Kept>) {
        self.places.insert(kept.task_id.clone(), Place::Waits(kept.clone()));
        self.by_message.insert(kept.message, kept.task_id.clone());
    }

    /// These are nobody's to hand out any more.
    pub fn received(&mut self, gone: &[MessageId]) {
        for message in gone {
            let task_id = self.by_message.remove(message);
            let Some(task_id) = task_id else { continue };
            let Some(Place::Waits(kept)) = self.places.get(&task_id) else { continue };
            let kept = kept.clone();
            self.results_bytes -= kept.bytes;
            self.remember(kept);
        }
    }

    fn remember(&mut self, kept: Arc<Kept>) {
        self.places.insert(kept.task_id.clone(), Place::Known);
        for forgotten in self.known.add(kept) {
            self.places.remove(&forgotten);
        }
    }
}

fn weight(task: &Task) -> usize {
    ENVELOPE_BYTES + task.bytes
}

#[cfg(test)]
mod tests;
