//! The guest of a member, as far as its tasks are concerned: those that it has, the results that it
//! reports, and hints that it is worth looking at it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use hivekeep_kernel::{ToolError, WorkspaceId, mailbox::ActorUnavailable};
use hivekeep_ports::{TASK_POLL, TaskResult, Tasks};
use tokio::time::Instant;

use crate::tasks::{Task, ledger::TaskLedger};

/// Pages of one reading; a guest has not more results than these hold.
const PAGES: usize = 60;
/// Pause before a workspace that was not found is looked for again: at a start it is found a little later.
const AGAIN: Duration = Duration::from_millis(50);
/// Hints that are followed at once, and how soon one more is allowed: a guest can send any number.
const HINTS: u32 = 64;
const HINT_EVERY: Duration = Duration::from_millis(10);

/// The tasks that a guest has, as far as is known. Nothing of it is recorded.
///
/// Each function gets the ledger with everything decided, of the durable one, or of both: a
/// task is put when it is durable, and not any more once its result is decided.
#[derive(Debug, Default)]
pub(crate) struct InGuest {
    /// By task: the number of the last reading that had begun before the guest took it.
    put: HashMap<String, u64>,
    readings: u64,
}

impl InGuest {
    /// The first tasks that the guest has to be given, at most so many, in the order of their
    /// arrival.
    pub(crate) fn to_put(
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
    pub(crate) fn put(&mut self, decided: &TaskLedger, task_id: &str) -> bool {
        decided.is_open(task_id) && self.put.insert(task_id.to_owned(), self.readings).is_none()
    }

    /// A task has a result.
    pub(crate) fn ended(&mut self, task_id: &str) {
        self.put.remove(task_id);
    }

    /// Something is asked of the guest from now on. Gives the tasks of which results are awaited,
    /// each with the message that assigned it; of those that have one, too, if wished.
    pub(crate) fn begin_reading(
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
    pub(crate) fn end_reading(&mut self, decided: &TaskLedger, in_guest: usize) -> usize {
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

/// The pages of one reading.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(super) results: Vec<TaskResult>,
    pub(super) queued: usize,
    pub(super) running: usize,
    /// Counts of before: its last page was not asked for.
    pub(super) stale: bool,
    /// Results that nobody here awaits.
    pub(super) dropped: u32,
    /// Some were left, beyond this number.
    pub(super) cut: Option<u64>,
}

/// Reads results behind the number `after`, as many as there is room for.
pub(super) async fn read(
    port: &dyn Tasks,
    id: WorkspaceId,
    mut after: u64,
    room: usize,
    awaited: &BTreeMap<String, String>,
) -> Result<Reading, ToolError> {
    let mut reading = Reading::default();
    for _ in 0..PAGES {
        let limit = u32::try_from(room - reading.results.len()).unwrap_or(u32::MAX);
        let page = port.results(id, after, limit, awaited).await?;
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

/// Gives hints to look at the guest, by itself or by time, for as long as somebody receives them.
pub(super) async fn watch(
    port: Arc<dyn Tasks>,
    id: WorkspaceId,
    hint: impl Fn() -> Result<(), ActorUnavailable> + Send,
) {
    let mut pace = Pace { left: HINTS, since: Instant::now() };
    let mut wait = AGAIN;
    loop {
        let Ok(mut hints) = port.hints(id).await else {
            // Calls to the workspace find out whether it is gone.
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(TASK_POLL);
            if hint().is_err() {
                return;
            }
            continue;
        };
        wait = AGAIN;
        // The first hint covers results from before the subscription.
        let mut more = true;
        while more {
            let wait = pace.step(Instant::now());
            // A sleep of nothing takes a millisecond or two.
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if hint().is_err() {
                return;
            }
            more = hints.next().await;
        }
    }
}

/// A token bucket of hints.
struct Pace {
    left: u32,
    since: Instant,
}

impl Pace {
    /// Time to wait before the next is followed.
    fn step(&mut self, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.since).as_millis() / HINT_EVERY.as_millis();
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(HINTS);
            (self.left, self.since) = (HINTS.min(self.left.saturating_add(gained)), now);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Duration::ZERO
            }
            None => {
                // The token gained during the wait is spent on this hint.
                self.since = now + HINT_EVERY;
                HINT_EVERY
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_hints_is_followed_a_hundred_times_a_second() {
        let begun = Instant::now();
        let (mut now, mut followed) = (begun, 0);
        let mut pace = Pace { left: HINTS, since: begun };
        while now < begun + Duration::from_secs(10) {
            now += pace.step(now) + Duration::from_micros(50);
            followed += 1;
        }
        assert!((1_000..1_100).contains(&followed), "{followed}");
        let later = now + Duration::from_secs(60);
        let burst = (0..HINTS).filter(|_| pace.step(later).is_zero()).count();
        assert_eq!(burst, HINTS as usize, "after a pause as many at once");
    }
}
