//! Write-ahead log of the queue: nothing is applied that was not written down.

mod commit;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;

use hivekeep_protocol::{
    Exit, GuestCode, GuestError, GuestTaskOutcome, GuestTaskState, TaskAcked, TaskPut,
    TaskPutReply, limits,
};

use super::folder::TaskFolders;
use super::log::{LogFlush, TaskLog};
use super::queue::{PutDecision, StoredTaskResult, TaskPhase, TaskQueue, TaskRecord, TaskRun};
use crate::files::io_error;
use crate::jobs::dir::{self, JobDir, JobState};

/// A task without a folder of its own runs in the first of these that is there.
const WORKDIRS: [&str; 2] = ["/workspace", "/root"];

/// Queue of tasks with its log. Used by one thread at a time, which may block.
#[derive(Debug)]
pub struct DurableQueue {
    pub(super) folder: TaskFolders,
    pub(super) tasks: TaskQueue,
    /// This machine's id.
    pub(super) owner: String,
    boot_id: String,
    loaded: bool,
    /// `None` as long as there have been no tasks.
    log: Option<TaskLog>,
    /// Places in the log of the requests of open tasks.
    asked_at: HashMap<u64, u64>,
    last_run: u64,
    /// Tasks that run and whose end was ordered.
    cancelled: HashSet<u64>,
    /// Runs of acknowledged tasks with more output than is shown, oldest first, and how much more.
    surplus: VecDeque<(u64, u64)>,
}

/// Way in which a task came to its end.
#[derive(Debug, Clone)]
pub enum TaskCommandEnd {
    /// Ended as the folder of its job records.
    OfJob,
    /// Not run, for this reason.
    NotRun(GuestError),
    /// Cancelled before it began.
    Cancelled,
}

fn disk(error: &io::Error) -> GuestError {
    io_error(error, "the tasks' folder")
}

impl DurableQueue {
    /// Makes an empty queue. Does not touch the disk.
    pub fn new(folder: TaskFolders, owner: String, boot_id: String) -> Self {
        Self {
            folder,
            tasks: TaskQueue::default(),
            owner,
            boot_id,
            loaded: false,
            log: None,
            asked_at: HashMap::new(),
            last_run: 0,
            cancelled: HashSet::new(),
            surplus: VecDeque::new(),
        }
    }

    /// Reads the folder, once. Another machine's tasks are put aside. Returns the tasks that may have begun
    /// and are not over.
    ///
    /// # Errors
    /// When the folder cannot be read; it is tried again by the next call.
    pub fn load(&mut self) -> Result<Vec<u64>, GuestError> {
        if self.loaded {
            return Ok(Vec::new());
        }
        if self.folder.exists().map_err(|error| disk(&error))? {
            self.read_back().map_err(|error| disk(&error))?;
        }
        self.sweep().map_err(|error| disk(&error))?;
        self.loaded = true;
        self.forget();
        let acknowledged: Vec<_> =
            self.tasks.acknowledged().into_iter().filter_map(run_of).collect();
        acknowledged.into_iter().for_each(|run| self.count_surplus(run));
        let begun = self.tasks.open().filter(|task| self.may_have_begun(task));
        let begun: Vec<_> = begun.map(|task| task.seq).collect();
        begun.iter().for_each(|seq| self.tasks.runs_already(*seq));
        Ok(begun)
    }

    /// Whether the job of a task runs, has ended or was lost. What cannot be read is looked at
    /// again when its end is taken.
    fn may_have_begun(&self, task: &TaskRecord) -> bool {
        let Some(run) = &task.run else { return false };
        let dir = self.folder.run(run.number);
        let state = dir.state(self.is_of_this_boot(run));
        !matches!(state, Ok(JobState::NeverBegan)) || dir.is_cancelled()
    }

    fn is_of_this_boot(&self, run: &TaskRun) -> bool {
        run.boot_id == self.boot_id
    }

    /// Writes down the run of a task, before it begins. Returns the job, the request and the working
    /// directory; `None` when the task has ended.
    ///
    /// # Errors
    /// Disk errors; then the task must not begin.
    pub fn begin(
        &mut self,
        seq: u64,
    ) -> Result<Option<(JobDir, TaskPut, Option<String>)>, GuestError> {
        let Some(task) = self.tasks.task(seq).filter(|_| self.tasks.is_open(seq)).cloned() else {
            return Ok(None);
        };
        let asked = self.asked(seq).map_err(|error| disk(&error))?;
        // A run that was written down before, in this boot, has not begun.
        let run = match task.run.clone() {
            Some(run) => run,
            None => {
                let run = self.next_run(&asked);
                let task = TaskRecord { run: Some(run.clone()), ..task };
                self.commit(vec![(task, None)], LogFlush::Now)?;
                run
            }
        };
        Ok(Some((self.folder.run(run.number), asked, run.workdir)))
    }

    fn next_run(&mut self, asked: &TaskPut) -> TaskRun {
        self.last_run += 1;
        let (boot_id, workdir) = (self.boot_id.clone(), Some(workdir_of(asked)));
        TaskRun { number: self.last_run, boot_id, workdir }
    }

    /// State of a task's job, as its folder says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn job_state(&self, seq: u64) -> io::Result<JobState> {
        let Some(run) = self.tasks.task(seq).and_then(|task| task.run.as_ref()) else {
            return Ok(JobState::NeverBegan);
        };
        self.folder.run(run.number).state(self.is_of_this_boot(run))
    }

    /// The run of a task that has one.
    pub fn run(&self, seq: u64) -> Option<JobDir> {
        self.tasks.task(seq).and_then(run_of).map(|number| self.folder.run(number))
    }

    /// Runs of open tasks if these are of another machine, whose memory this one began with; to be killed
    /// before anything else is done. `None` if they are this machine's.
    pub fn runs_of_another(&self, machine_id: &str) -> Option<Vec<JobDir>> {
        let runs =
            || self.tasks.open().filter_map(run_of).map(|run| self.folder.run(run)).collect();
        is_another(&self.owner, machine_id).then(runs)
    }

    /// Puts the tasks of another machine aside, and begins a queue of this machine's.
    ///
    /// # Errors
    /// When the tasks cannot be put aside; then they are still what they were.
    pub fn become_of(&mut self, machine_id: &str) -> Result<(), GuestError> {
        if self.folder.exists().map_err(|error| disk(&error))? {
            self.folder.put_aside(&self.owner).map_err(|error| disk(&error))?;
        }
        let (folder, boot_id) = (self.folder.clone(), self.boot_id.clone());
        let (tasks, last_run) = (self.tasks.successor(), self.last_run);
        let next = Self::new(folder, machine_id.to_owned(), boot_id);
        *self = Self { loaded: true, tasks, last_run, ..next };
        Ok(())
    }

    /// Makes the tasks of another machine, whose memory this one began with, this machine's. Returns how many wait
    /// or run.
    ///
    /// # Errors
    /// Disk errors; then they are still what they were.
    pub fn keep(&mut self, machine_id: &str) -> Result<u32, GuestError> {
        if is_another(&self.owner, machine_id) {
            let before = std::mem::replace(&mut self.owner, machine_id.to_owned());
            if let Err(error) = self.renew() {
                self.owner = before;
                return Err(disk(&error));
            }
        }
        Ok(count(self.tasks.open().count()))
    }

    /// Answers [`TaskPut`]. A task that may begin at once has its run written down with it; its place is
    /// returned too, and the answer says that it runs.
    ///
    /// # Errors
    /// `Busy` when there are too many tasks, or disk errors; then nothing is kept of the task.
    pub fn put(
        &mut self,
        asked: TaskPut,
        may_begin: bool,
    ) -> Result<(TaskPutReply, Option<u64>), GuestError> {
        let digest = digest_of(&asked);
        match self.tasks.put(&asked.task_id, &asked.message_id, digest.clone()) {
            PutDecision::Full => {
                let message = format!("{} tasks are kept and not acknowledged", limits::MAX_TASKS);
                Err(GuestError::new(GuestCode::Busy, message))
            }
            PutDecision::Repeat(task) => {
                let result = match &task.phase {
                    TaskPhase::Open => None,
                    TaskPhase::Ended(ended) | TaskPhase::Acknowledged(ended) => {
                        Some(Box::new(self.result(&task, ended)?))
                    }
                };
                let (state, differs) = (self.tasks.state(&task), task.digest != digest);
                Ok((TaskPutReply { state, repeat: true, differs, result }, None))
            }
            PutDecision::New(mut task) => {
                let (seq, begins) = (task.seq, may_begin && self.tasks.is_idle());
                task.run = begins.then(|| self.next_run(&asked));
                self.commit(vec![(task, Some(asked))], LogFlush::Now)?;
                if begins {
                    self.tasks.runs_already(seq);
                }
                let state = if begins { GuestTaskState::Running } else { GuestTaskState::Queued };
                let taken = TaskPutReply { state, repeat: false, differs: false, result: None };
                Ok((taken, begins.then_some(seq)))
            }
        }
    }

    /// Answers [`hivekeep_protocol::TaskAck`].
    ///
    /// # Errors
    /// Disk errors; then none is acknowledged.
    pub fn acknowledge(&mut self, task_ids: &[String]) -> Result<TaskAcked, GuestError> {
        let ids: HashSet<_> = task_ids.iter().collect();
        let tasks: Vec<_> = ids.into_iter().filter_map(|id| self.tasks.acknowledge(id)).collect();
        let (acknowledged, runs) =
            (tasks.len(), tasks.iter().filter_map(run_of).collect::<Vec<_>>());
        if !tasks.is_empty() {
            // No flush is needed: a host that gets a result again acknowledges it again.
            let tasks = tasks.into_iter().map(|task| (task, None)).collect();
            self.commit(tasks, LogFlush::WithTheNext)?;
        }
        runs.into_iter().for_each(|run| self.count_surplus(run));
        self.forget();
        Ok(TaskAcked { acknowledged: count(acknowledged) })
    }

    /// Forgets the oldest tasks and removes their outputs. The log still has their records: the next
    /// daemon forgets them again.
    fn forget(&mut self) {
        for run in self.tasks.forget().iter().filter_map(run_of) {
            self.surplus.retain(|(other, _)| *other != run);
            self.folder.remove_outputs(run);
        }
    }

    fn count_surplus(&mut self, run: u64) {
        let bytes = self.folder.surplus_bytes(run);
        if bytes > 0 {
            self.surplus.push_back((run, bytes));
        }
        let mut total: u64 = self.surplus.iter().map(|(_, bytes)| bytes).sum();
        while total > limits::TASK_OUTPUTS_BYTES {
            let Some((oldest, bytes)) = self.surplus.pop_front() else { break };
            self.folder.cut_outputs(oldest);
            total -= bytes;
        }
    }

    /// Ends a task that waits, at once and durably. The run of a task that runs is returned, to be killed.
    ///
    /// # Errors
    /// `UnknownTask`, or disk errors.
    pub fn cancel(
        &mut self,
        task_id: &str,
    ) -> Result<(GuestTaskState, Option<JobDir>), GuestError> {
        let task = self.tasks.find(task_id).ok_or_else(|| unknown(task_id))?.clone();
        let state = self.tasks.state(&task);
        match state {
            GuestTaskState::Queued => {
                self.end(task.seq, &TaskCommandEnd::Cancelled).map(|()| (state, None))
            }
            // A task that is about to begin finds out that it must not.
            GuestTaskState::Running if task.run.is_none() => self
                .end(task.seq, &TaskCommandEnd::Cancelled)
                .map(|()| (GuestTaskState::Queued, None)),
            GuestTaskState::Running => {
                self.cancelled.insert(task.seq);
                let run = self.run(task.seq);
                if let Some(run) = run.as_ref().filter(|run| run.path().exists()) {
                    run.note_cancel().map_err(|error| disk(&error))?;
                }
                Ok((state, run))
            }
            GuestTaskState::Done | GuestTaskState::Acknowledged => Ok((state, None)),
        }
    }

    /// Whether the end of a task that runs was ordered.
    pub fn is_cancelled(&self, seq: u64) -> bool {
        self.cancelled.contains(&seq)
    }

    /// Writes down how a task ended, unless that is known.
    ///
    /// # Errors
    /// Disk errors; it is then to be tried again.
    pub fn end(&mut self, seq: u64, end: &TaskCommandEnd) -> Result<(), GuestError> {
        let ended = match end {
            TaskCommandEnd::NotRun(error) => {
                not_run(GuestTaskOutcome::NotRun(bounded(error.clone())))
            }
            TaskCommandEnd::Cancelled => not_run(GuestTaskOutcome::Cancelled),
            TaskCommandEnd::OfJob => {
                let ended = match self.job_state(seq).map_err(|error| disk(&error))? {
                    JobState::Ended(ended) => Some(ended),
                    _ => None,
                };
                self.ended(seq, ended)
            }
        };
        let task = self.tasks.end(seq, |number| StoredTaskResult { number, ..ended });
        if let Some(task) = task {
            self.commit(vec![(task, None)], LogFlush::Now)?;
        }
        self.cancelled.remove(&seq);
        Ok(())
    }

    /// The result of a task whose run is over; without an end it was interrupted.
    fn ended(&self, seq: u64, ended: Option<dir::JobEnd>) -> StoredTaskResult {
        let run = self.tasks.task(seq).and_then(|task| task.run.clone());
        let dir = run.as_ref().map(|run| self.folder.run(run.number));
        let workdir = run.and_then(|run| run.workdir);
        let Some(ended) = ended else {
            let totals = dir.map_or([0; 2], |dir| dir.totals());
            return StoredTaskResult { workdir, totals, ..not_run(GuestTaskOutcome::Interrupted) };
        };
        let outcome = match ended.exit {
            _ if ended.interrupted => GuestTaskOutcome::Interrupted,
            _ if ended.timed_out => GuestTaskOutcome::TimedOut,
            Exit::Signal(libc::SIGKILL) if dir.is_some_and(|dir| dir.is_cancelled()) => {
                GuestTaskOutcome::Cancelled
            }
            exit => GuestTaskOutcome::Ended(exit),
        };
        let (elapsed_ms, totals) = (ended.elapsed_ms, ended.totals);
        StoredTaskResult { number: 0, outcome, workdir, elapsed_ms, totals }
    }
}

fn unknown(task_id: &str) -> GuestError {
    GuestError::new(GuestCode::UnknownTask, format!("there is no task {task_id:?}"))
}

/// A machine without an id is no other.
fn is_another(owner: &str, machine_id: &str) -> bool {
    !owner.is_empty() && !machine_id.is_empty() && owner != machine_id
}

/// The folder that a task runs in.
fn workdir_of(asked: &TaskPut) -> String {
    let default = || WORKDIRS.into_iter().find(|dir| Path::new(dir).is_dir()).unwrap_or("/");
    asked.workdir.clone().unwrap_or_else(|| default().to_owned())
}

fn count(many: usize) -> u32 {
    many.try_into().unwrap_or(u32::MAX)
}

fn digest_of(asked: &TaskPut) -> String {
    let what = (&asked.command, &asked.workdir, asked.timeout_secs);
    let bytes = hivekeep_protocol::encode(&what).expect("plain data");
    blake3::hash(&bytes).to_hex().to_string()
}

fn bounded(mut error: GuestError) -> GuestError {
    let mut end = error.message.len().min(limits::MAX_TASK_REASON_BYTES);
    while !error.message.is_char_boundary(end) {
        end -= 1;
    }
    error.message.truncate(end);
    error
}

fn not_run(outcome: GuestTaskOutcome) -> StoredTaskResult {
    StoredTaskResult { number: 0, outcome, workdir: None, elapsed_ms: 0, totals: [0; 2] }
}

/// The run that holds a task's output.
fn run_of(task: &TaskRecord) -> Option<u64> {
    task.run.as_ref().map(|run| run.number)
}
