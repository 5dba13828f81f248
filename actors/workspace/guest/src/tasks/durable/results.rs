//! Read side of the queue: results, lists, output.

use hivekeep_protocol::{
    GuestError, GuestTaskOutcome, GuestTaskResult, GuestTaskState, Spool, TaskListReply as Listed,
    TaskRead, TaskReadReply, TaskResultsPush, TaskResultsReply, TaskStreamOutput, limits,
};

use super::{DurableQueue, count, disk, run_of, unknown};
use crate::tasks::queue::{StoredTaskResult, TaskPhase, TaskRecord};

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
