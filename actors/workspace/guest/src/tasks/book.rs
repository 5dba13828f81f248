//! The queue and its folder as one: nothing is settled that was not written down.

mod told;
mod written;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

use hivekeep_protocol::{
    Exit, GuestCode, GuestError, TaskAcked, TaskOutcome, TaskPut, TaskState, TaskTaken, limits,
};

use super::folder::Folder;
use super::log::{Flush, Log};
use super::queue::{Ended, Phase, Put, Queue, Resume, Run, Task, Trace, resume};
use crate::files::io_error;
use crate::jobs::dir::{self, Found, JobDir};

/// All that is known of the tasks. Used by one thread at a time, which may block.
#[derive(Debug)]
pub struct Book {
    pub(super) folder: Folder,
    pub(super) queue: Queue,
    /// This machine's id.
    pub(super) owner: String,
    /// The log says so.
    owner_is_written: bool,
    boot_id: String,
    loaded: bool,
    /// `None` as long as there have been no tasks.
    log: Option<Log>,
    /// Where it has what open tasks ask for.
    asked_at: HashMap<u64, u64>,
    last_run: u64,
    /// Tasks that run and whose end was ordered.
    cancelled: HashSet<u64>,
    /// Runs of acknowledged tasks with more output than is shown, oldest first, and how much more.
    surplus: VecDeque<(u64, u64)>,
}

/// How a task came to its end.
#[derive(Debug, Clone)]
pub enum End {
    /// By what its run's folder says.
    Found,
    /// As its shim tells, and its run's folder too.
    Told(dir::Ended),
    /// It was not run.
    NotRun(GuestError),
    /// It was cancelled before it began.
    Cancelled,
}

fn disk(error: &io::Error) -> GuestError {
    io_error(error, "the tasks' folder")
}

impl Book {
    /// Does not touch the disk.
    pub fn new(folder: Folder, owner: String, boot_id: String) -> Self {
        Self {
            folder,
            queue: Queue::default(),
            owner,
            owner_is_written: false,
            boot_id,
            loaded: false,
            log: None,
            asked_at: HashMap::new(),
            last_run: 0,
            cancelled: HashSet::new(),
            surplus: VecDeque::new(),
        }
    }

    /// Reads the folder, once. Another machine's tasks are put aside. Answers the tasks that are
    /// not over, and what is to be done with each.
    ///
    /// # Errors
    /// When it cannot be read; it is tried again by the next call.
    pub fn load(&mut self) -> Result<Vec<(u64, Resume)>, GuestError> {
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
            self.queue.acknowledged().into_iter().filter_map(run_of).collect();
        acknowledged.into_iter().for_each(|run| self.count_surplus(run));
        let open = self.queue.open().map(|task| (task.seq, resume(self.trace(task))));
        let open: Vec<_> = open.collect();
        for (seq, what) in &open {
            if *what != Resume::Wait {
                self.queue.runs_already(*seq);
            }
        }
        Ok(open)
    }

    fn trace(&self, task: &Task) -> Trace {
        let Some(run) = &task.run else { return Trace::None };
        let dir = self.folder.run(run.number);
        match dir.found(self.is_of_this_boot(run)) {
            Ok(Found::NeverBegan) if dir.is_cancelled() => Trace::Over,
            Ok(Found::Nothing | Found::NeverBegan) if self.is_of_this_boot(run) => Trace::None,
            Ok(Found::Running) => Trace::Running,
            // What cannot be read is looked at again when its end is taken. That there is no
            // folder says nothing after another boot: it was not flushed.
            Ok(_) | Err(_) => Trace::Over,
        }
    }

    fn is_of_this_boot(&self, run: &Run) -> bool {
        run.boot_id == self.boot_id
    }

    /// The greatest number of a run.
    pub fn last_run(&self) -> u64 {
        self.last_run
    }

    /// Sees to it that a run is written down, before it begins. `false` when the task has ended.
    ///
    /// # Errors
    /// Disk errors; then it must not begin.
    pub fn begin(&mut self, seq: u64, run: Run) -> Result<bool, GuestError> {
        let Some(task) = self.queue.begin(seq, run) else { return Ok(false) };
        self.commit(vec![(task, None)], Flush::Now)?;
        Ok(true)
    }

    /// What the folder says of a task's last run, and that one's folder.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn found(&self, seq: u64) -> io::Result<Found> {
        let Some(run) = self.queue.task(seq).and_then(|task| task.run.as_ref()) else {
            return Ok(Found::Nothing);
        };
        self.folder.run(run.number).found(self.is_of_this_boot(run))
    }

    /// The run of a task that has one.
    pub fn run(&self, seq: u64) -> Option<JobDir> {
        self.queue.task(seq).and_then(run_of).map(|number| self.folder.run(number))
    }

    /// Another machine's memory has become this one. Its tasks neither run here nor are told of:
    /// their runs are answered, to be killed before anything else is done.
    pub fn runs_of_another(&self, machine_id: &str) -> Option<Vec<JobDir>> {
        let runs =
            || self.queue.open().filter_map(run_of).map(|run| self.folder.run(run)).collect();
        is_another(&self.owner, machine_id).then(runs)
    }

    /// A machine without tasks is another one from now on: all there is stays, to be used by it.
    /// `false` where there may be some.
    pub fn take_over(&mut self, machine_id: &str) -> bool {
        let none = self.loaded && self.queue.all().next().is_none();
        if none {
            (self.owner, self.owner_is_written) = (machine_id.to_owned(), false);
        }
        none
    }

    /// The tasks are another machine's, which were put aside.
    ///
    /// # Errors
    /// When they could not be; then they are still what they were.
    pub fn become_of(&mut self, machine_id: &str) -> Result<(), GuestError> {
        if self.folder.exists().map_err(|error| disk(&error))? {
            self.folder.put_aside(&self.owner).map_err(|error| disk(&error))?;
        }
        let (folder, boot_id) = (self.folder.clone(), self.boot_id.clone());
        let queue = self.queue.successor();
        *self = Self { loaded: true, queue, ..Self::new(folder, machine_id.to_owned(), boot_id) };
        Ok(())
    }

    /// Answers [`TaskPut`]. A task that may start at once does so in what `at_hand` makes of it, if
    /// anything, which is answered beside its place: its run is written down with it.
    ///
    /// # Errors
    /// `Busy` when there are too many, or disk errors; then nothing is kept of it.
    pub fn put<L>(
        &mut self,
        asked: TaskPut,
        at_hand: impl FnOnce(&TaskPut) -> Option<(Run, L)>,
    ) -> Result<(TaskTaken, Option<(u64, L)>), GuestError> {
        let digest = digest_of(&asked);
        match self.queue.put(&asked.task_id, &asked.message_id, digest.clone()) {
            Put::Full => {
                let message = format!("{} tasks are kept and not acknowledged", limits::MAX_TASKS);
                Err(GuestError::new(GuestCode::Busy, message))
            }
            Put::Repeat(task) => {
                let result = match &task.phase {
                    Phase::Open => None,
                    Phase::Ended(ended) | Phase::Acknowledged(ended) => {
                        Some(Box::new(self.result(&task, ended)?))
                    }
                };
                let (state, differs) = (self.queue.state(&task), task.digest != digest);
                Ok((TaskTaken { state, repeat: true, differs, result }, None))
            }
            Put::New(mut task) => {
                let at_hand = self.queue.is_idle().then(|| at_hand(&asked)).flatten();
                let (seq, mut state, mut launch) = (task.seq, TaskState::Queued, None);
                if let Some((run, it)) = at_hand {
                    (task.run, state, launch) = (Some(run), TaskState::Running, Some((seq, it)));
                }
                self.commit(vec![(task, Some(asked))], Flush::Now)?;
                if launch.is_some() {
                    self.queue.runs_already(seq);
                }
                Ok((TaskTaken { state, repeat: false, differs: false, result: None }, launch))
            }
        }
    }

    /// Answers [`hivekeep_protocol::TaskAck`].
    ///
    /// # Errors
    /// Disk errors; then none is acknowledged.
    pub fn acknowledge(&mut self, task_ids: &[String]) -> Result<TaskAcked, GuestError> {
        let ids: HashSet<_> = task_ids.iter().collect();
        let tasks: Vec<_> = ids.into_iter().filter_map(|id| self.queue.acknowledge(id)).collect();
        let (acknowledged, runs) =
            (tasks.len(), tasks.iter().filter_map(run_of).collect::<Vec<_>>());
        if !tasks.is_empty() {
            // A host that is told one again has it, and says so again.
            let tasks = tasks.into_iter().map(|task| (task, None)).collect();
            self.commit(tasks, Flush::WithTheNext)?;
        }
        runs.into_iter().for_each(|run| self.count_surplus(run));
        self.forget();
        Ok(TaskAcked { acknowledged: count(acknowledged) })
    }

    /// Of what is forgotten the log still has records: the next daemon forgets it again.
    fn forget(&mut self) {
        for run in self.queue.forget().iter().filter_map(run_of) {
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

    /// Ends a task that waits, at once and durably. One that runs is to be killed: its run is
    /// answered.
    ///
    /// # Errors
    /// `UnknownTask`, or disk errors.
    pub fn cancel(&mut self, task_id: &str) -> Result<(TaskState, Option<JobDir>), GuestError> {
        let task = self.queue.find(task_id).ok_or_else(|| unknown(task_id))?.clone();
        let state = self.queue.state(&task);
        match state {
            TaskState::Queued => self.end(task.seq, &End::Cancelled).map(|()| (state, None)),
            // Claimed, and about to begin: it finds out that it must not.
            TaskState::Running if task.run.is_none() => {
                self.end(task.seq, &End::Cancelled).map(|()| (TaskState::Queued, None))
            }
            TaskState::Running => {
                self.cancelled.insert(task.seq);
                let run = self.run(task.seq);
                if let Some(run) = run.as_ref().filter(|run| run.path().exists()) {
                    run.note_cancel().map_err(|error| disk(&error))?;
                }
                Ok((state, run))
            }
            TaskState::Done | TaskState::Acknowledged => Ok((state, None)),
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
    pub fn end(&mut self, seq: u64, end: &End) -> Result<(), GuestError> {
        let ended = match end {
            End::NotRun(error) => not_run(TaskOutcome::NotRun(bounded(error.clone()))),
            End::Cancelled => not_run(TaskOutcome::Cancelled),
            End::Told(ended) => self.ended(seq, Some(*ended)),
            End::Found => {
                let ended = match self.found(seq).map_err(|error| disk(&error))? {
                    Found::Ended(ended) => Some(ended),
                    _ => None,
                };
                self.ended(seq, ended)
            }
        };
        let task = self.queue.end(seq, |number| Ended { number, ..ended });
        if let Some(task) = task {
            self.commit(vec![(task, None)], Flush::Now)?;
        }
        self.cancelled.remove(&seq);
        Ok(())
    }

    /// The result of a task whose run is over; without an end it was interrupted.
    fn ended(&self, seq: u64, ended: Option<dir::Ended>) -> Ended {
        let run = self.queue.task(seq).and_then(|task| task.run.clone());
        let dir = run.as_ref().map(|run| self.folder.run(run.number));
        let workdir = run.and_then(|run| run.workdir);
        let Some(ended) = ended else {
            let totals = dir.map_or([0; 2], |dir| dir.totals());
            return Ended { workdir, totals, ..not_run(TaskOutcome::Interrupted) };
        };
        let outcome = match ended.exit {
            _ if ended.interrupted => TaskOutcome::Interrupted,
            _ if ended.timed_out => TaskOutcome::TimedOut,
            Exit::Signal(libc::SIGKILL) if dir.is_some_and(|dir| dir.is_cancelled()) => {
                TaskOutcome::Cancelled
            }
            exit => TaskOutcome::Ended(exit),
        };
        let (elapsed_ms, totals) = (ended.elapsed_ms, ended.totals);
        Ended { number: 0, outcome, workdir, elapsed_ms, totals }
    }
}

fn unknown(task_id: &str) -> GuestError {
    GuestError::new(GuestCode::UnknownTask, format!("no task {task_id:?}"))
}

/// A machine without an id is no other.
fn is_another(owner: &str, machine_id: &str) -> bool {
    !owner.is_empty() && !machine_id.is_empty() && owner != machine_id
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

fn not_run(outcome: TaskOutcome) -> Ended {
    Ended { number: 0, outcome, workdir: None, elapsed_ms: 0, totals: [0; 2] }
}

/// The run that holds a task's output.
fn run_of(task: &Task) -> Option<u64> {
    task.run.as_ref().map(|run| run.number)
}
