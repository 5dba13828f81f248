//! Commits to the log: no change of the queue holds before it is written; and the read side of the queue: results,
//! lists, output.

use std::collections::{HashMap, HashSet};
use std::io;

use hivekeep_protocol::{
    GuestError, GuestTaskOutcome, GuestTaskResult, GuestTaskState, Spool, TaskListReply as Listed,
    TaskPut, TaskRead, TaskReadReply, TaskResultsPush, TaskResultsReply, TaskStreamOutput, limits,
};
use serde::{Deserialize, Serialize};

use super::{DurableQueue, count, disk, is_another, run_of, unknown};
use crate::tasks::log::{LogFlush, TaskLog};
use crate::tasks::queue::{StoredTaskResult, TaskPhase, TaskQueue, TaskRecord};

/// Record of the log; the last record of a task counts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Task(Box<Change>),
    /// The id of the machine whose tasks these are. A log begins with it.
    Owner {
        owner: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    task: TaskRecord,
    /// The request, with the first record of a task.
    asked: Option<TaskPut>,
}

impl Entry {
    fn of(task: TaskRecord, asked: Option<TaskPut>) -> Self {
        Self::Task(Box::new(Change { task, asked }))
    }

    fn owner(owner: &str) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Self::Owner { owner: owner.to_owned() })?)
    }
}

impl DurableQueue {
    pub(super) fn read_back(&mut self) -> io::Result<()> {
        let (mut queue, mut asked_at) = (TaskQueue::default(), HashMap::new());
        let mut of = None;
        let log = self.folder.load(|at, record| {
            match serde_json::from_slice(record)? {
                Entry::Owner { owner } => of = Some(owner),
                Entry::Task(change) => {
                    let Change { task, asked } = *change;
                    if asked.is_some() {
                        asked_at.insert(task.seq, at);
                    }
                    queue.apply(task);
                }
            }
            Ok(())
        })?;
        if let Some(owner) = of.as_ref().filter(|owner| is_another(owner, &self.owner)) {
            return self.folder.put_aside(owner);
        }
        asked_at.retain(|seq, _| queue.is_open(*seq));
        (self.tasks, self.asked_at, self.log) = (queue, asked_at, Some(log));
        match of.as_ref() == Some(&self.owner) {
            true => Ok(()),
            // The guest of an earlier version made logs before the first task, without an owner.
            false => self.renew(),
        }
    }

    /// Removes what earlier daemons left that is no task's, and counts runs on from theirs.
    pub(super) fn sweep(&mut self) -> io::Result<()> {
        let runs: HashSet<_> = self.tasks.all().filter_map(run_of).collect();
        let open: HashSet<_> = self.tasks.open().filter_map(run_of).collect();
        let swept = self.folder.sweep(|run| runs.contains(&run), |run| open.contains(&run))?;
        self.last_run = runs.into_iter().chain([swept]).max().unwrap_or(0);
        Ok(())
    }

    /// Writes records of tasks to the log, then applies them.
    pub(super) fn commit(
        &mut self,
        tasks: Vec<(TaskRecord, Option<TaskPut>)>,
        flush: LogFlush,
    ) -> Result<(), GuestError> {
        let mut put = Vec::new();
        let entries = tasks.into_iter().map(|(task, asked)| {
            put.push((task.clone(), asked.is_some()));
            Entry::of(task, asked)
        });
        let written = entries
            .map(|entry| serde_json::to_vec(&entry))
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::from)
            .and_then(|records| self.log()?.append(&records, flush));
        let places = written.map_err(|error| disk(&error))?;
        for ((task, asks), at) in put.into_iter().zip(places) {
            match (&task.phase, asks) {
                (TaskPhase::Open, true) => drop(self.asked_at.insert(task.seq, at)),
                (TaskPhase::Open, false) => {}
                _ => drop(self.asked_at.remove(&task.seq)),
            }
            self.tasks.apply(task);
        }
        Ok(())
    }

    /// The log, made if it is missing; a broken or long log is renewed.
    fn log(&mut self) -> io::Result<&mut TaskLog> {
        match &self.log {
            None => self.log = Some(self.folder.make(Entry::owner(&self.owner)?)?),
            Some(log) if log.is_broken() => self.renew()?,
            Some(log) if log.is_long() => drop(self.renew()),
            Some(_) => {}
        }
        let log = self.log.as_mut().expect("it is there");
        if log.is_long() {
            log.go_on();
        }
        Ok(log)
    }

    /// Replaces the log by one of what still counts.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        let Some(old) = &self.log else { return Ok(()) };
        let tasks: Vec<_> = self.tasks.all().cloned().collect();
        let records = tasks.iter().map(|task| {
            let asked = self.asked_at.get(&task.seq).map(|at| asked_at(old, *at)).transpose()?;
            Ok(serde_json::to_vec(&Entry::of(task.clone(), asked))?)
        });
        let records = std::iter::once(Entry::owner(&self.owner)).chain(records);
        let (log, places) = TaskLog::create(&self.folder.log(), records)?;
        let places = tasks.iter().map(|task| task.seq).zip(places.into_iter().skip(1));
        self.asked_at = places.filter(|(seq, _)| self.asked_at.contains_key(seq)).collect();
        self.log = Some(log);
        Ok(())
    }

    /// Request of an open task.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn asked(&self, seq: u64) -> io::Result<TaskPut> {
        let at = self.asked_at.get(&seq).zip(self.log.as_ref());
        let (at, log) = at.ok_or(io::ErrorKind::NotFound)?;
        asked_at(log, *at)
    }
}

/// Request in the record at this place.
fn asked_at(log: &TaskLog, at: u64) -> io::Result<TaskPut> {
    match serde_json::from_slice(&log.record(at)?)? {
        Entry::Task(change) => change.asked.ok_or_else(|| io::ErrorKind::NotFound.into()),
        Entry::Owner { .. } => Err(io::ErrorKind::NotFound.into()),
    }
}

impl DurableQueue {
    pub(super) fn result(
        &self,
        task: &TaskRecord,
        ended: &StoredTaskResult,
    ) -> Result<GuestTaskResult, GuestError> {
        let output = |stream, total| match run_of(task) {
            Some(run) if total > 0 || ended.outcome == GuestTaskOutcome::Interrupted => {
                self.folder.output(run, stream, total).map_err(|error| disk(&error))
            }
            _ => Ok(TaskStreamOutput { total_bytes: total, ..TaskStreamOutput::default() }),
        };
        Ok(GuestTaskResult {
            number: ended.number,
            task_id: task.task_id.clone(),
            message_id: task.message_id.clone(),
            outcome: ended.outcome.clone(),
            workdir: ended.workdir.clone(),
            stdout: output("stdout", ended.totals[0])?,
            stderr: output("stderr", ended.totals[1])?,
            elapsed_ms: ended.elapsed_ms,
        })
    }

    /// Answers [`hivekeep_protocol::TaskList`].
    pub fn list(&self) -> Listed {
        let of = |state| {
            let mine = self.tasks.open().filter(|task| self.tasks.state(task) == state);
            mine.map(|task| task.task_id.clone()).collect()
        };
        let results = self.tasks.results(0).len();
        Listed {
            queued: of(GuestTaskState::Queued),
            running: of(GuestTaskState::Running),
            results: count(results),
        }
    }

    /// Answers [`hivekeep_protocol::TaskResults`].
    ///
    /// # Errors
    /// Disk errors.
    pub fn results(&self, after: u64, limit: u32) -> Result<TaskResultsReply, GuestError> {
        let all = self.tasks.results(after);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(limits::MAX_TASK_RESULTS);
        let taken = all.iter().take(limit);
        let results =
            taken.map(|(task, ended)| self.result(task, ended)).collect::<Result<_, _>>()?;
        Ok(self.page(results, all.len() > limit))
    }

    fn page(&self, results: Vec<GuestTaskResult>, more: bool) -> TaskResultsReply {
        let open = self.tasks.open().count();
        let running =
            self.tasks.open().filter(|task| self.tasks.state(task) == GuestTaskState::Running);
        let running = running.count();
        TaskResultsReply { results, more, queued: count(open - running), running: count(running) }
    }

    /// A result that was just written down, for a host that has all before it. `None` when there is none, or
    /// it cannot be read.
    pub fn results_push(&self, seq: u64) -> Option<TaskResultsPush> {
        let task = self.tasks.task(seq)?;
        let TaskPhase::Ended(ended) = &task.phase else { return None };
        let before = self.tasks.results(0).into_iter().map(|(_, other)| other.number);
        let after = before.take_while(|number| *number < ended.number).last().unwrap_or(0);
        let result = self.result(task, ended).ok()?;
        Some(TaskResultsPush { after, page: self.page(vec![result], false) })
    }

    /// Answers [`TaskRead`].
    ///
    /// # Errors
    /// `UnknownTask`, or disk errors.
    pub fn reading(&self, asked: &TaskRead) -> Result<TaskReadReply, GuestError> {
        let task = self.tasks.find(&asked.task_id).ok_or_else(|| unknown(&asked.task_id))?;
        let run = run_of(task);
        let written = match &task.phase {
            TaskPhase::Open => run.map_or([0; 2], |run| self.folder.run(run).totals()),
            TaskPhase::Ended(ended) | TaskPhase::Acknowledged(ended) => ended.totals,
        };
        let max = asked.max_bytes.min(limits::MAX_TASK_READ_BYTES).into();
        let run = run.map(|run| self.folder.run(run));
        let part = |name, from, total| match &run {
            Some(run) => run.part(name, from, max, total).map_err(|error| disk(&error)),
            None => Ok(Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: 0 }),
        };
        Ok(TaskReadReply {
            state: self.tasks.state(task),
            stdout: part("stdout", asked.stdout_from, written[0])?,
            stderr: part("stderr", asked.stderr_from, written[1])?,
        })
    }
}
