//! The folder of one job: its request, who runs it, its output, its exit.
//!
//! | file | holds | written by |
//! |---|---|---|
//! | `spec.json` | the request, when and in which boot | the daemon, before all else |
//! | `lock` | locked while the shim lives; a byte once the command may have begun | the daemon, handed to the shim |
//! | `cancelled` | nothing: a task's end was ordered | the daemon |
//! | `input` | the named pipe of a process's input | the shim |
//! | `input-closed` | nothing: the input is to be closed | the daemon |
//! | `stop.json` | the order to end a process | the daemon |
//! | `size.json` | the order to resize a terminal; `size.taken` while that is done | the daemon |
//! | `read.json` | bytes that a reader has, if output is held back; `read.taken` once taken | the daemon |
//! | `process.json` | process ids | the shim |
//! | `stdout`, `stderr` | the kept output; of a process also [`super::segments`] | the shim, with the first byte |
//! | `totals` | two big-endian `u64`: bytes written in all | the shim, past the limit |
//! | `exit.json` | how it ended | the shim, last of all |
//!
//! No `exit.json` and no lock: the shim died, alone or with its machine, and the job was
//! interrupted.
//!
//! The folder of a job that the host started is on the disk, and all there is of it. That of a
//! task is in the run folder, which a reboot empties, and its output beside the tasks' log.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use hivekeep_protocol::{Exit, JobReport, JobStart, JobSummary, PtySize, Spool};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::segments;
use crate::files::sync_parent;

/// Maximum bytes of one stream in a report: both streams fit a frame.
const MAX_PART_BYTES: u64 = 480 * 1024;

/// The durable request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Request of the host.
    pub start: JobStart,
    /// Id of the boot that the job was started in.
    pub boot_id: String,
    /// Wall clock at start.
    pub started_unix_ms: u64,
    /// Set for a job that the queue of tasks started.
    #[serde(default)]
    pub task: Option<TaskTerms>,
    /// Set for a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessTerms>,
}

/// Terms of a process beyond those of other jobs: its input is open, its last output is kept, and
/// [`ProcessStopOrder`] ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTerms {
    /// Size of its terminal, if it has one.
    pub pty: Option<PtySize>,
    /// Its standard input is `/dev/null`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_input: bool,
    /// Its output is held back for its reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// Order to end a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStopOrder {
    /// Time between SIGTERM and SIGKILL; 0 is SIGKILL at once.
    pub grace_ms: u64,
}

/// Terms of a task beyond those of other jobs: it ends with its first process, at the latest at its
/// limit, and what is left of it then is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTerms {
    /// Time limit from the task's start.
    pub limit_secs: u64,
    /// The folder that keeps its output; made with the first byte.
    pub outputs: PathBuf,
}

/// Processes of a job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Process {
    /// The shim.
    pub shim_pid: i32,
    /// The first process of the job.
    pub leader_pid: i32,
}

/// End of a job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct JobEnd {
    /// The leader's exit.
    pub exit: Exit,
    /// Ended by the shutdown of the machine.
    pub interrupted: bool,
    /// Wall clock at the end.
    pub finished_unix_ms: u64,
    /// Bytes written to stdout and stderr, kept or not.
    pub totals: [u64; 2],
    /// True if the job was killed at its limit.
    #[serde(default)]
    pub timed_out: bool,
    /// Time from start to end by a clock that is never set.
    #[serde(default)]
    pub elapsed_ms: u64,
}

/// State of a job, as its folder tells it to any daemon.
#[derive(Debug, Clone, Copy)]
pub enum JobState {
    /// The command has not been started, and nobody is left who would.
    NeverBegan,
    /// The shim lives.
    Running,
    /// The shim saw it end.
    Ended(JobEnd),
    /// The shim died, or the machine did.
    Lost,
}

/// Mark that the end of the job was ordered.
const CANCELLED: &str = "cancelled";
/// Mark that the end of the input was ordered.
const INPUT_CLOSED: &str = "input-closed";
/// Order to end a process.
const STOP: &str = "stop.json";
/// Order of the size of a terminal.
const SIZE: &str = "size.json";
/// Order of a size that the shim has taken and not yet carried out.
const SIZE_TAKEN: &str = "size.taken";
/// Bytes of both streams that a reader has read.
const READ: &str = "read.json";
/// Bytes that a reader has read, once the shim has taken them.
const READ_TAKEN: &str = "read.taken";

/// The folder of one job.
#[derive(Debug, Clone)]
pub struct JobDir {
    path: PathBuf,
    outputs: PathBuf,
}

impl JobDir {
    /// A job that keeps its output in its folder. Does not touch the disk.
    pub fn new(path: PathBuf) -> Self {
        Self { outputs: path.clone(), path }
    }

    /// A job whose output is kept elsewhere; see [`TaskTerms::outputs`].
    pub fn with_outputs(path: PathBuf, outputs: PathBuf) -> Self {
        Self { path, outputs }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of the job's `stdout` and `stderr`.
    pub fn outputs(&self) -> &Path {
        &self.outputs
    }

    /// The job's id is the folder's name.
    pub fn id(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn exists(&self) -> bool {
        self.path.join("spec.json").exists()
    }

    /// # Errors
    /// When it cannot be read.
    pub fn spec(&self) -> io::Result<JobSpec> {
        Ok(serde_json::from_slice(&std::fs::read(self.path.join("spec.json"))?)?)
    }

    /// `None` until the shim has started the leader.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn process(&self) -> io::Result<Option<Process>> {
        self.load("process.json")
    }

    /// Reads a file. One that the machine's end has torn counts as none.
    fn load<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file as a whole, durably.
    pub(super) fn store<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let temp = self.path.join(format!("{name}.new"));
        let mut file = File::create(&temp)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        let target = self.path.join(name);
        file.sync_all()?;
        std::fs::rename(temp, &target)?;
        sync_parent(&target)
    }

    /// Writes a file as a whole that only this boot needs, so that nothing waits for the disk.
    pub(super) fn publish<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temp = self.path.join(format!("{name}.{number}"));
        std::fs::write(&temp, serde_json::to_vec(value)?)?;
        std::fs::rename(temp, self.path.join(name))
    }

    /// Takes the lock that says that the job runs.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let lock = File::create(self.path.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Whether the shim lives.
    pub(crate) fn is_locked(&self) -> bool {
        File::open(self.path.join("lock")).is_ok_and(|lock| {
            let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
            taken == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }

    /// Recorded end of the job.
    fn ended(&self) -> io::Result<Option<JobEnd>> {
        self.load("exit.json")
    }

    /// State of the job. `of_this_boot` says that it was started since the machine was.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn state(&self, of_this_boot: bool) -> io::Result<JobState> {
        if let Some(ended) = self.ended()? {
            return Ok(JobState::Ended(ended));
        }
        if self.is_locked() {
            return Ok(JobState::Running);
        }
        // A shim that ended meanwhile has left its exit by the time its lock is free.
        Ok(match self.ended()? {
            Some(ended) => JobState::Ended(ended),
            // After another boot a missing mark says nothing: it was not flushed.
            None if of_this_boot && !self.may_have_begun() => JobState::NeverBegan,
            None => JobState::Lost,
        })
    }

    /// Whether the command may have been started, as the shim says in the file of the lock.
    pub(super) fn may_have_begun(&self) -> bool {
        std::fs::metadata(self.path.join("lock")).is_ok_and(|lock| lock.len() > 0)
    }

    /// True if the job has ended or its shim has.
    pub(crate) fn is_over(&self) -> io::Result<bool> {
        Ok(!matches!(self.state(true)?, JobState::Running))
    }

    /// Notes the order to end the job, before it takes effect.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_cancel(&self) -> io::Result<()> {
        File::create(self.path.join(CANCELLED)).map(drop)
    }

    /// True if the end of the job was ordered.
    pub fn is_cancelled(&self) -> bool {
        self.path.join(CANCELLED).exists()
    }

    /// Path of the named pipe of a process's input.
    pub(super) fn input_pipe(&self) -> PathBuf {
        self.path.join("input")
    }

    /// Notes that the input is to be closed.
    pub(super) fn note_input_closed(&self) -> io::Result<()> {
        File::create(self.path.join(INPUT_CLOSED)).map(drop)
    }

    /// Whether the input was ordered to be closed.
    pub(super) fn input_closed(&self) -> bool {
        self.path.join(INPUT_CLOSED).exists()
    }

    /// Notes how a process is to be ended. A later order replaces an earlier one.
    pub(super) fn order_stop(&self, order: ProcessStopOrder) -> io::Result<()> {
        self.publish(STOP, &order)
    }

    /// How a process is to be ended, if it is.
    pub(super) fn stop_order(&self) -> io::Result<Option<ProcessStopOrder>> {
        self.load(STOP)
    }

    /// Notes the size that a terminal is to have. A later order replaces an earlier one.
    pub(super) fn order_size(&self, size: PtySize) -> io::Result<()> {
        self.publish(SIZE, &size)
    }

    /// Takes the order of a size, if there is one, until [`Self::note_sized`].
    pub(super) fn take_size(&self) -> io::Result<Option<PtySize>> {
        match std::fs::rename(self.path.join(SIZE), self.path.join(SIZE_TAKEN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            // An order that a shim took and did not carry out still stands.
            _ => self.load(SIZE_TAKEN),
        }
    }

    /// Notes that the order that was taken is carried out.
    pub(super) fn note_sized(&self) -> io::Result<()> {
        std::fs::remove_file(self.path.join(SIZE_TAKEN))
    }

    /// Whether an order of a size is to be carried out.
    pub(super) fn is_to_be_sized(&self) -> bool {
        [SIZE, SIZE_TAKEN].iter().any(|name| self.path.join(name).exists())
    }

    /// Notes how far a reader has come. Returns whether that is further than was known.
    pub(super) fn note_read(&self, read: [u64; 2]) -> io::Result<bool> {
        let taken = || self.load::<[u64; 2]>(READ_TAKEN);
        let known = self.load(READ)?.map_or_else(taken, |read| Ok(Some(read)))?.unwrap_or_default();
        let read = [read[0].max(known[0]), read[1].max(known[1])];
        if read != known {
            self.publish(READ, &read)?;
        }
        Ok(read != known)
    }

    /// How far a reader has come, if that is further than when it was taken last.
    pub(super) fn take_read(&self) -> io::Result<Option<[u64; 2]>> {
        match std::fs::rename(self.path.join(READ), self.path.join(READ_TAKEN)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(()) => self.load(READ_TAKEN),
        }
    }

    /// # Errors
    /// When the folder cannot be read.
    pub fn summary(&self) -> io::Result<JobSummary> {
        self.summary_of(&self.spec()?)
    }

    fn summary_of(&self, spec: &JobSpec) -> io::Result<JobSummary> {
        let (ended, interrupted) = match self.state(true)? {
            JobState::Ended(ended) => (Some(ended), ended.interrupted),
            JobState::Running => (None, false),
            JobState::NeverBegan | JobState::Lost => (None, true),
        };
        Ok(JobSummary {
            job_id: spec.start.job_id.clone(),
            exit: ended.map(|ended| ended.exit),
            interrupted,
            started_unix_ms: spec.started_unix_ms,
            finished_unix_ms: ended.map(|ended| ended.finished_unix_ms),
        })
    }

    /// # Errors
    /// When the folder cannot be read.
    pub fn report(&self, out_from: u64, err_from: u64, max_bytes: u64) -> io::Result<JobReport> {
        let spec = self.spec()?;
        // Read before the output: a job that is reported as ended has all its output.
        let summary = self.summary_of(&spec)?;
        let totals = self.ended()?.map_or_else(|| self.totals(), |ended| ended.totals);
        let max = max_bytes.min(MAX_PART_BYTES);
        let part = |name, from, total| match &spec.process {
            Some(_) => {
                segments::read(&self.outputs, name, spec.start.spool_bytes, from, max, total)
            }
            None => self.part(name, from, max, total),
        };
        let stdout = part("stdout", out_from, totals[0])?;
        let stderr = part("stderr", err_from, totals[1])?;
        Ok(JobReport { summary, stdout, stderr })
    }

    /// Bytes written to stdout and stderr as far as the shim has recorded them, which it does only past the
    /// limit of what is kept.
    pub(crate) fn totals(&self) -> [u64; 2] {
        let mut bytes = [0; 16];
        let mut totals = [0; 2];
        let read =
            File::open(self.path.join("totals")).and_then(|mut file| file.read_exact(&mut bytes));
        if read.is_ok() {
            for (total, bytes) in totals.iter_mut().zip(bytes.chunks_exact(8)) {
                *total = u64::from_be_bytes(bytes.try_into().expect("eight of sixteen"));
            }
        }
        totals
    }

    /// Kept output from a cursor; `total` is what is known to have been written.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn part(&self, name: &str, from: u64, max: u64, total: u64) -> io::Result<Spool> {
        let file = match File::open(self.outputs.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: 0 });
            }
            Err(error) => return Err(error),
        };
        let kept_bytes = file.metadata()?.len();
        let from = from.min(kept_bytes);
        let wanted = usize::try_from((kept_bytes - from).min(max)).expect("at most 480 KiB");
        let mut bytes = vec![0; wanted];
        file.read_exact_at(&mut bytes, from)?;
        Ok(Spool { from, bytes, kept_bytes, total_bytes: total.max(kept_bytes) })
    }

    /// Removes the folder; a crash in between leaves a hidden folder for the next start.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let gone = self.path.with_file_name(format!(".gone-{}", self.id()));
        std::fs::rename(&self.path, &gone)?;
        sync_parent(&gone)?;
        std::fs::remove_dir_all(gone)
    }
}

/// The guest's wall clock.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_machines_end_has_torn_is_of_a_run_that_was_lost() {
        let temp = tempfile::tempdir().expect("a folder");
        let job = JobDir::new(temp.path().join("job"));
        let found = || job.state(true).expect("readable");
        assert!(matches!(found(), JobState::NeverBegan));
        let after_a_boot = job.state(false).expect("readable");
        assert!(matches!(after_a_boot, JobState::Lost), "its folder was not flushed");
        std::fs::create_dir(job.path()).expect("made");
        let lock = || std::fs::write(job.path().join("lock"), "").expect("written");
        lock();
        assert!(matches!(found(), JobState::NeverBegan));
        let after_a_boot = job.state(false).expect("readable");
        assert!(matches!(after_a_boot, JobState::Lost), "its lock is as empty as it was");
        std::fs::write(job.path().join("lock"), "1").expect("begun");
        for torn in ["", "{\"exit\":{\"Co"] {
            std::fs::write(job.path().join("exit.json"), torn).expect("torn");
            assert!(matches!(found(), JobState::Lost), "{torn:?}");
            std::fs::write(job.path().join("process.json"), torn).expect("torn");
            assert!(job.process().expect("readable").is_none(), "{torn:?}");
        }
    }
}
