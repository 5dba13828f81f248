//! The tasks that a member's guest has, as far as is known. Pure; nothing of it is recorded.
//!
//! Each function gets the ledger with everything decided, of the durable one, or of both: a
//! task is put when it is durable, and not any more once its result is decided.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::ledger::{Task, TaskLedger};

/// The tasks that a guest has.
#[derive(Debug, Default)]
pub struct InGuest {
    /// By task: the number of the last reading that had begun before the guest took it.
    put: HashMap<String, u64>,
    readings: u64,
}

impl InGuest {
    /// The first tasks that the guest has to be given, at most so many, in the order of their
    /// arrival.
    pub fn to_put(
        &self,
        decided: &TaskLedger,
        durable: &TaskLedger,
        most: usize,
    ) -> Vec<Arc<Task>> {
        let waits = |task: &&Arc<Task>| {
            let task_id = &task.work.task_id;
            decided.is_open(task_id) && !self.put.contains_key(task_id)
        };
        durable.open().filter(waits).take(most).cloned().collect()
    }

    /// The guest has a task. Says whether that is news.
    pub fn put(&mut self, decided: &TaskLedger, task_id: &str) -> bool {
        decided.is_open(task_id) && self.put.insert(task_id.to_owned(), self.readings).is_none()
    }

    /// A task has a result.
    pub fn ended(&mut self, task_id: &str) {
        self.put.remove(task_id);
    }

    /// Something is asked of the guest from now on. Gives the tasks of which results are awaited,
    /// each with the message that assigned it; of those that have one, too, if wished.
    pub fn begin_reading(
        &mut self,
        durable: &TaskLedger,
        with_done: bool,
    ) -> BTreeMap<String, String> {
        self.readings += 1;
        let pair = |task: &Arc<Task>| (task.work.task_id.clone(), task.message.to_string());
        let mut awaited: BTreeMap<_, _> = durable.open().map(pair).collect();
        if with_done {
            awaited.extend(durable.done().map(|it| (it.task_id.clone(), it.message.to_string())));
        }
        awaited
    }

    /// A reading is over: those of its tasks that have no result are in the guest, which has so
    /// many. If there are more of them, the guest has lost some (it is a snapshot of before), and
    /// all are put again. Says how many.
    pub fn end_reading(&mut self, decided: &TaskLedger, in_guest: usize) -> usize {
        let readings = self.readings;
        let awaited = |(id, at): &(&String, &u64)| **at < readings && decided.is_open(id);
        let count = self.put.iter().filter(awaited).count();
        if count <= in_guest {
            return 0;
        }
        self.put.retain(|id, at| !awaited(&(id, at)));
        count
    }
}
