//! Read side of the queue: results, lists, output.

use hivekeep_protocol::{
    GuestError, Spool, TaskNews, TaskOutcome, TaskOutput, TaskPage, TaskRead, TaskReading,
    TaskResult, TaskState, Tasks as Listed, limits,
};

use super::{DurableQueue, count, disk, run_of, unknown};
use crate::tasks::queue::{Ended, Phase, Task};

impl DurableQueue {
    pub(super) fn result(&self, task: &Task, ended: &Ended) -> Result<TaskResult, GuestError> {
        let output = |stream, total| match run_of(task) {
            Some(run) if total > 0 || ended.outcome == TaskOutcome::Interrupted => {
                self.folder.output(run, stream, total).map_err(|error| disk(&error))
            }
            _ => Ok(TaskOutput { total_bytes: total, ..TaskOutput::default() }),
        };
        Ok(TaskResult {
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
            queued: of(TaskState::Queued),
            running: of(TaskState::Running),
            results: count(results),
        }
    }

    /// Answers [`hivekeep_protocol::TaskResults`].
    ///
    /// # Errors
    /// Disk errors.
    pub fn results(&self, after: u64, limit: u32) -> Result<TaskPage, GuestError> {
        let all = self.tasks.results(after);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(limits::MAX_TASK_RESULTS);
        let taken = all.iter().take(limit);
        let results =
            taken.map(|(task, ended)| self.result(task, ended)).collect::<Result<_, _>>()?;
        Ok(self.page(results, all.len() > limit))
    }

    fn page(&self, results: Vec<TaskResult>, more: bool) -> TaskPage {
        let open = self.tasks.open().count();
        let running = self.tasks.open().filter(|task| self.tasks.state(task) == TaskState::Running);
        let running = running.count();
        TaskPage { results, more, queued: count(open - running), running: count(running) }
    }

    /// A result that was just written down, for whoever has all before it. `None` when there is
    /// none, or it cannot be read.
    pub fn news(&self, seq: u64) -> Option<TaskNews> {
        let task = self.tasks.task(seq)?;
        let Phase::Ended(ended) = &task.phase else { return None };
        let before = self.tasks.results(0).into_iter().map(|(_, other)| other.number);
        let after = before.take_while(|number| *number < ended.number).last().unwrap_or(0);
        let result = self.result(task, ended).ok()?;
        Some(TaskNews { after, page: self.page(vec![result], false) })
    }

    /// Answers [`TaskRead`].
    ///
    /// # Errors
    /// `UnknownTask`, or disk errors.
    pub fn reading(&self, asked: &TaskRead) -> Result<TaskReading, GuestError> {
        let task = self.tasks.find(&asked.task_id).ok_or_else(|| unknown(&asked.task_id))?;
        let run = run_of(task);
        let written = match &task.phase {
            Phase::Open => run.map_or([0; 2], |run| self.folder.run(run).totals()),
            Phase::Ended(ended) | Phase::Acknowledged(ended) => ended.totals,
        };
        let max = asked.max_bytes.min(limits::MAX_TASK_READ_BYTES).into();
        let run = run.map(|run| self.folder.run(run));
        let part = |name, from, total| match &run {
            Some(run) => run.part(name, from, max, total).map_err(|error| disk(&error)),
            None => Ok(Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: 0 }),
        };
        Ok(TaskReading {
            state: self.tasks.state(task),
            stdout: part("stdout", asked.stdout_from, written[0])?,
            stderr: part("stderr", asked.stderr_from, written[1])?,
        })
    }
}
