//! What is kept of one job, or of the run of a task.
//!
//! | file | holds | written by |
//! |---|---|---|
//! | `spec.json` | the request, when and in which boot (a job's) | the daemon, before all else |
//! | `lock` | locked while its shim sees to it; of a task, a byte once it may have begun | a job's: the daemon, handed to the shim; a run's: the shim |
//! | `cancelled` | nothing: its end was ordered (a task's) | the daemon |
//! | `process.json` | process ids | the shim |
//! | `stdout`, `stderr` | the kept output | the shim |
//! | `totals` | two big-endian `u64`: bytes written in all | the shim, past the limit |
//! | `exit.json` | how it ended | the shim, last of all |
//!
//! No `exit.json` and no lock: the shim died with its machine, the job was interrupted.
//!
//! A job's folder is all there is of it, and durable. Of a task there is more: its run's folder is
//! worth something in its boot only.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hivekeep_protocol::{Exit, JobReport, JobStart, JobSummary, Spool};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::files::temp::sync_parent;

/// Both streams' parts of one report fit a frame.
const MAX_PART_BYTES: u64 = 480 * 1024;

/// The durable request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// As asked.
    pub start: JobStart,
    /// The boot it was started in.
    pub boot_id: String,
    /// Wall clock at start.
    pub started_unix_ms: u64,
}

impl Spec {
    /// Of a job that starts now.
    pub fn now(start: JobStart, boot_id: String) -> Self {
        Self { start, boot_id, started_unix_ms: unix_ms() }
    }
}

/// Who runs it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Process {
    /// The shim.
    pub shim_pid: i32,
    /// The first process of the job or task.
    pub leader_pid: i32,
}

/// How it ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ended {
    /// The leader's exit.
    pub exit: Exit,
    /// Ended by the shutdown of the machine.
    pub interrupted: bool,
    /// Wall clock at the end.
    pub finished_unix_ms: u64,
    /// Bytes written to stdout and stderr, kept or not.
    pub totals: [u64; 2],
    /// Killed at its limit.
    #[serde(default)]
    pub timed_out: bool,
    /// By a clock that is never set.
    #[serde(default)]
    pub elapsed_ms: u64,
}

/// What a folder says of a task's run to a daemon that did not start it.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// There is no such run, and in this boot there was none.
    Nothing,
    /// It was made in this boot, its command has not been started, and nobody is left who would.
    NeverBegan,
    /// Its shim lives.
    Running,
    /// It ended.
    Ended(Ended),
    /// Its shim died, or its machine did.
    Lost,
}

/// Somebody ordered its end.
const CANCELLED: &str = "cancelled";

/// The folder of one job.
#[derive(Debug, Clone)]
pub struct JobDir(PathBuf);

impl JobDir {
    /// Does not touch the disk.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The job's id is the folder's name.
    pub fn id(&self) -> String {
        self.0.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.join("spec.json").exists()
    }

    /// # Errors
    /// When it cannot be read.
    pub fn spec(&self) -> io::Result<Spec> {
        self.load("spec.json")?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// `None` until the shim has started the leader.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn process(&self) -> io::Result<Option<Process>> {
        self.load("process.json")
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match std::fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file as a whole, durably.
    pub(super) fn store<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let temp = self.0.join(format!("{name}.new"));
        let mut file = File::create(&temp)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        let target = self.0.join(name);
        file.sync_all()?;
        std::fs::rename(temp, &target)?;
        sync_parent(&target)
    }

    /// Takes the lock that says that the job runs.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let lock = File::create(self.0.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Whether the shim lives.
    pub(crate) fn is_locked(&self) -> bool {
        File::open(self.0.join("lock")).is_ok_and(|lock| {
            let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
            taken == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }

    fn ended(&self) -> io::Result<Option<Ended>> {
        self.load("exit.json")
    }

    /// What became of a task's run.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn found(&self, of_this_boot: bool) -> io::Result<Found> {
        if !self.0.try_exists()? {
            // A machine's end takes folders with it that were not flushed.
            return Ok(if of_this_boot { Found::Nothing } else { Found::Lost });
        }
        if let Some(ended) = untorn(self.ended())? {
            return Ok(Found::Ended(ended));
        }
        if self.is_locked() {
            return Ok(Found::Running);
        }
        // A shim that ended meanwhile has left its exit by the time its lock is free.
        Ok(match untorn(self.ended())? {
            Some(ended) => Found::Ended(ended),
            None if of_this_boot && !self.has_begun() => Found::NeverBegan,
            None => Found::Lost,
        })
    }

    /// Whether a task's command may have been started; see [`Self::lock`], whose file says so.
    fn has_begun(&self) -> bool {
        std::fs::metadata(self.0.join("lock")).is_ok_and(|lock| lock.len() > 0)
    }

    /// Whether it has ended, or whoever looked after it has.
    pub(crate) fn is_over(&self) -> io::Result<bool> {
        Ok(untorn(self.ended())?.is_some() || !self.is_locked())
    }

    /// Notes that its end was ordered, before it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_cancel(&self) -> io::Result<()> {
        File::create(self.0.join(CANCELLED)).map(drop)
    }

    /// Whether its end was ordered.
    pub fn is_cancelled(&self) -> bool {
        self.0.join(CANCELLED).exists()
    }

    /// # Errors
    /// When the folder cannot be read.
    pub fn summary(&self) -> io::Result<JobSummary> {
        let spec = self.spec()?;
        // The lock is looked at between: a shim that ends meanwhile has left its
        // exit by the time its lock is free.
        let (mut ended, mut interrupted) = (self.ended()?, false);
        if ended.is_none() && !self.is_locked() {
            ended = self.ended()?;
            interrupted = ended.is_none();
        }
        Ok(JobSummary {
            job_id: spec.start.job_id,
            exit: ended.map(|ended| ended.exit),
            interrupted: interrupted || ended.is_some_and(|ended| ended.interrupted),
            started_unix_ms: spec.started_unix_ms,
            finished_unix_ms: ended.map(|ended| ended.finished_unix_ms),
        })
    }

    /// # Errors
    /// When the folder cannot be read.
    pub fn report(&self, out_from: u64, err_from: u64, max_bytes: u64) -> io::Result<JobReport> {
        // Before the output: what is said to have ended has all its output there.
        let summary = self.summary()?;
        let totals = self.ended()?.map_or_else(|| self.totals(), |ended| ended.totals);
        let max = max_bytes.min(MAX_PART_BYTES);
        Ok(JobReport {
            summary,
            stdout: self.part("stdout", out_from, max, totals[0])?,
            stderr: self.part("stderr", err_from, max, totals[1])?,
        })
    }

    /// Bytes written to stdout and stderr as far as its shim has said, which it does only past the
    /// limit of what is kept.
    pub(crate) fn totals(&self) -> [u64; 2] {
        let mut bytes = [0; 16];
        let mut totals = [0; 2];
        let read =
            File::open(self.0.join("totals")).and_then(|mut file| file.read_exact(&mut bytes));
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
        let file = match File::open(self.0.join(name)) {
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

    /// Removes it; a crash in between leaves a hidden folder for the next start.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let gone = self.0.with_file_name(format!(".gone-{}", self.id()));
        std::fs::rename(&self.0, &gone)?;
        sync_parent(&gone)?;
        std::fs::remove_dir_all(gone)
    }
}

/// A file that its machine's end has torn says as much as none.
fn untorn<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            Ok(None)
        }
        read => read,
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
        let found = || job.found(true).expect("readable");
        assert!(matches!(found(), Found::Nothing));
        let after_a_boot = job.found(false).expect("readable");
        assert!(matches!(after_a_boot, Found::Lost), "its folder was not flushed");
        std::fs::create_dir(job.path()).expect("made");
        let lock = || std::fs::write(job.path().join("lock"), "").expect("written");
        lock();
        assert!(matches!(found(), Found::NeverBegan));
        let after_a_boot = job.found(false).expect("readable");
        assert!(matches!(after_a_boot, Found::Lost), "its lock is as empty as it was");
        std::fs::write(job.path().join("lock"), "1").expect("begun");
        for torn in ["", "{\"exit\":{\"Co"] {
            std::fs::write(job.path().join("exit.json"), torn).expect("torn");
            assert!(matches!(found(), Found::Lost), "{torn:?}");
        }
    }
}
