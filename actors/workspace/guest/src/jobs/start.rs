//! Runner of jobs: the request is written down first, then the process is started. The host's jobs
//! and the queue's tasks are started alike.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hivekeep_protocol::{GuestCode, GuestError, JobStart, JobStarted, limits};
use rustix::process::{Pid, WaitOptions};

use super::dir::{JobDir, JobSpec, ProcessTerms, TaskTerms, unix_ms};
use super::folder::disk;
use crate::agent::Agent;
use crate::as_user;
use crate::contain::raw;
use crate::exec::command::PreparedCommand;
use crate::files::sync_parent;
use crate::sys::spawn::{Program, Stdio, spawn};

/// A shim says how its start went within this time, or it is broken.
const ACK_WITHIN: Duration = Duration::from_secs(20);

/// Outcome of an attempt to start a job.
#[derive(Debug)]
pub(crate) enum StartAttempt {
    /// The first process has this id.
    Started(u32),
    /// The folder was there before.
    Exists,
    /// The command may have begun, whatever the error says: the folder tells.
    Unknown(GuestError),
}

/// A job as the host wants it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) start: JobStart,
    /// Set for a process.
    pub(super) process: Option<ProcessTerms>,
}

/// Starts one of the host's jobs. Blocking; see [`start()`](super::start()).
pub(super) fn start(agent: &Agent, asked: Wanted) -> Result<JobStarted, GuestError> {
    let job = agent.jobs.at(&asked.start.job_id)?;
    if job.exists() {
        return existing(&job, &asked);
    }
    let count = agent.jobs.all().map_err(|error| disk(&error))?.len();
    if count >= limits::MAX_JOBS {
        let message = format!("{count} jobs are kept; forget ended ones (job forget) first");
        return Err(GuestError::new(GuestCode::Busy, message));
    }
    match attempt(agent, &job, asked.start.clone(), asked.process, None)? {
        StartAttempt::Started(pid) => Ok(JobStarted { pid, existed: false }),
        StartAttempt::Exists => existing(&job, &asked),
        StartAttempt::Unknown(error) => Err(error),
    }
}

/// Makes a job's folder and starts its shim. Blocking.
///
/// # Errors
/// When the job was surely not started; then nothing is left of it.
pub(crate) fn attempt(
    agent: &Agent,
    job: &JobDir,
    start: JobStart,
    process: Option<ProcessTerms>,
    task: Option<TaskTerms>,
) -> Result<StartAttempt, GuestError> {
    // Refuses nonsense before anything is kept of it; the shim does it for real.
    let run_dir = &agent.settings.run_dir;
    drop(PreparedCommand::new(&start.argv, &start.env, start.workdir.as_deref(), run_dir)?);
    as_user::check(&start.argv)?;
    let boot_id = agent.identity.boot_id.clone();
    let spec = JobSpec { start, boot_id, started_unix_ms: unix_ms(), task, process };
    let Some(lock) = record(job, &spec).map_err(|error| disk(&error))? else {
        return Ok(StartAttempt::Exists);
    };
    let launched = launch(agent, job, &lock).map_err(|error| disk(&error));
    drop(lock);
    let refused = match launched.map(|told| read_outcome(&told)) {
        Ok(Ok(Ok(pid))) => return Ok(StartAttempt::Started(pid)),
        Ok(Err(silent)) => return Ok(StartAttempt::Unknown(disk(&silent))),
        Ok(Ok(Err(error))) if job.may_have_begun() => return Ok(StartAttempt::Unknown(error)),
        Ok(Ok(Err(error))) | Err(error) => error,
    };
    agent.contain.remove_job(&job.id());
    job.remove().map_err(|error| disk(&error))?;
    Err(refused)
}

/// Makes the job's folder with its request, locked from its first moment on.
/// `None` when another call was quicker.
fn record(job: &JobDir, spec: &JobSpec) -> io::Result<Option<File>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = job.path().with_file_name(format!(".new-{number}-{}", job.id()));
    std::fs::create_dir_all(&path)?;
    let staged = JobDir::new(path);
    let lock = staged.lock()?;
    staged.store("spec.json", spec)?;
    match std::fs::rename(staged.path(), job.path()) {
        Ok(()) => {
            sync_parent(job.path())?;
            Ok(Some(lock))
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
            ) =>
        {
            std::fs::remove_dir_all(staged.path())?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn existing(job: &JobDir, asked: &Wanted) -> Result<JobStarted, GuestError> {
    let spec = job.spec().map_err(|error| disk(&error))?;
    if spec.start != asked.start || spec.process != asked.process {
        let message = format!("job {:?} is another command", asked.start.job_id);
        return Err(GuestError::new(GuestCode::JobConflict, message));
    }
    // Another call may be starting it at this moment.
    let deadline = Instant::now() + ACK_WITHIN;
    loop {
        let process = job.process().map_err(|error| disk(&error))?;
        if process.is_some() || !job.is_locked() || Instant::now() > deadline {
            let pid = process.map_or(0, |process| process.leader_pid);
            return Ok(JobStarted { pid: pid.try_into().unwrap_or(0), existed: true });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts the shim, which inherits the lock. Answers where it says how its start went.
fn launch(agent: &Agent, job: &JobDir, lock: &File) -> io::Result<File> {
    let cgroup = agent.contain.job_cgroup(&job.id());
    cgroup.as_ref().map(std::fs::create_dir_all).transpose()?;
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let argv = vec![
        c"hivekeep-guest".to_owned(),
        c"job".to_owned(),
        text(job.path())?,
        text(&agent.settings.run_dir)?,
        text(cgroup.as_deref().unwrap_or(Path::new("")))?,
    ];
    let program = Program {
        path: text(&agent.settings.exe)?,
        argv,
        env: Vec::new(),
        workdirs: vec![c"/".to_owned()],
        max_open_files: None,
    };
    let (heard, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let stdio = Stdio {
        extra: Some(lock.as_fd()),
        ..Stdio::of(agent.null.as_fd(), told.as_fd(), rustix::stdio::stderr())
    };
    let started = spawn(&program, &stdio).map_err(io::Error::other)?;
    // The process started here ends at once: the shim goes on in its child.
    let _ = rustix::process::waitpid(Pid::from_raw(raw(started.pid)), WaitOptions::empty());
    Ok(heard.into())
}

fn read_outcome(mut pipe: &File) -> io::Result<Result<u32, GuestError>> {
    let deadline = Instant::now() + ACK_WITHIN;
    let (mut text, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&timeout))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the job's shim is silent"));
        }
        match pipe.read(&mut part)? {
            0 if text.is_empty() => return Err(io::Error::other("the job's shim died")),
            0 => return Ok(serde_json::from_slice(&text)?),
            n => text.extend_from_slice(&part[..n]),
        }
    }
}
