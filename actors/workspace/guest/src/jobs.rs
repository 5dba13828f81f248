//! Background jobs. Each is run by a [`shim`] process of its own, so that a job
//! and its output outlive the call, the link and this daemon; what is known of it
//! is in its [`dir`] on disk, and nowhere else.
//!
//! A job runs until the last of its processes ends; its exit is its leader's.

pub mod dir;
pub mod shim;
pub(crate) mod start;
pub mod watch;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hivekeep_protocol::{
    GuestCode, GuestError, JobForget, JobForgotten, JobKill, JobKilled, JobPoll, JobReport,
    JobStart, JobStarted, Jobs as JobsReply,
};

use crate::agent::Settings;
use crate::contain::{cgroup, descend::descendants};
use crate::files::{io_error, off_thread};
use crate::session::call::CallCx;
use crate::sys::kill::kill as send_signal;
use dir::JobDir;

/// Longest wait for the effect of a signal.
const KILL_WAIT: Duration = Duration::from_millis(500);

/// The folder of all jobs.
#[derive(Debug, Clone)]
pub struct Jobs {
    root: PathBuf,
    boot_id: String,
}

impl Jobs {
    /// Opens the folder and removes what a killed daemon left half made or removed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(settings: &Settings, boot_id: &str) -> io::Result<Self> {
        let jobs = Self { root: settings.state_dir.join("jobs"), boot_id: boot_id.to_owned() };
        for entry in std::fs::read_dir(&jobs.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(jobs)
    }

    fn find(&self, id: &str) -> Result<JobDir, GuestError> {
        let job = self.at(id)?;
        if job.exists() {
            return Ok(job);
        }
        Err(GuestError::new(GuestCode::UnknownJob, format!("no job {id:?}")))
    }

    fn at(&self, id: &str) -> Result<JobDir, GuestError> {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        if !(1..=64).contains(&id.len()) || !id.bytes().all(plain) {
            return Err(GuestError::new(GuestCode::Invalid, format!("{id:?} is no job id")));
        }
        Ok(JobDir::new(self.root.join(id)))
    }

    /// Every job there is, in no order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn all(&self) -> io::Result<Vec<JobDir>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                all.push(JobDir::new(entry.path()));
            }
        }
        Ok(all)
    }
}

fn disk(error: &io::Error) -> GuestError {
    io_error(error, "the job's folder")
}

/// Answers [`JobStart`].
///
/// # Errors
/// `Invalid`, `JobConflict`, `Busy` with too many jobs, `CannotStart`, disk errors.
pub async fn start(cx: &CallCx, asked: JobStart) -> Result<JobStarted, GuestError> {
    let (agent, id) = (cx.agent.clone(), asked.job_id.clone());
    let started = off_thread(move || start::start(&agent, asked)).await?;
    if !started.existed {
        watch::one(&cx.agent, cx.agent.jobs.find(&id)?);
    }
    Ok(started)
}

/// Answers [`JobPoll`].
///
/// # Errors
/// `UnknownJob`, or disk errors.
pub async fn poll(cx: &CallCx, asked: JobPoll) -> Result<JobReport, GuestError> {
    let job = cx.agent.jobs.find(&asked.job_id)?;
    off_thread(move || job.report(asked.stdout_from, asked.stderr_from, asked.max_bytes))
        .await
        .map_err(|error| disk(&error))
}

/// Answers [`hivekeep_protocol::JobList`].
///
/// # Errors
/// Disk errors.
pub async fn list(cx: &CallCx) -> Result<JobsReply, GuestError> {
    let jobs = cx.agent.jobs.clone();
    let summaries = off_thread(move || {
        let all = jobs.all()?;
        // A job that is forgotten meanwhile is no longer listed.
        Ok(all.iter().filter_map(|job| job.summary().ok()).collect::<Vec<_>>())
    });
    let mut jobs = summaries.await.map_err(|error: io::Error| disk(&error))?;
    jobs.sort_by(|a, b| (a.started_unix_ms, &a.job_id).cmp(&(b.started_unix_ms, &b.job_id)));
    Ok(JobsReply { jobs })
}

/// Answers [`JobKill`].
///
/// # Errors
/// `UnknownJob`, `Invalid` for a signal outside 1 to 64, or disk errors.
pub async fn kill(cx: &CallCx, asked: JobKill) -> Result<JobKilled, GuestError> {
    if !(1..=64).contains(&asked.signal) {
        let message = format!("{} is no signal", asked.signal);
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let job = cx.agent.jobs.find(&asked.job_id)?;
    let cgroup = cx.agent.contain.job_cgroup(&asked.job_id);
    let (already_ended, summary) = off_thread(move || {
        let summary = job.summary()?;
        if summary.exit.is_some() || summary.interrupted {
            return Ok((true, summary));
        }
        signal_and_wait(&job, cgroup.as_deref(), asked.signal)?;
        Ok((false, job.summary()?))
    })
    .await
    .map_err(|error: io::Error| disk(&error))?;
    Ok(JobKilled { already_ended, summary })
}

/// Signals every process of a job, and again while it lives if the signal is SIGKILL; waits at most
/// half a second for its end.
pub(crate) fn signal_and_wait(
    job: &JobDir,
    cgroup: Option<&std::path::Path>,
    signal: i32,
) -> io::Result<()> {
    let (deadline, mut first) = (std::time::Instant::now() + KILL_WAIT, true);
    loop {
        if first || signal == libc::SIGKILL {
            signal_all(job, cgroup, signal)?;
        }
        first = false;
        if job.is_over()? || std::time::Instant::now() > deadline {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal_all(job: &JobDir, cgroup: Option<&std::path::Path>, signal: i32) -> io::Result<()> {
    let pids = match cgroup {
        Some(dir) if signal == libc::SIGKILL => {
            return match std::fs::write(dir.join("cgroup.kill"), "1") {
                // The job has ended and its cgroup is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                written => written,
            };
        }
        Some(dir) => cgroup::pids_below(dir),
        None => job.process()?.map_or_else(Vec::new, |process| descendants(process.shim_pid)),
    };
    for pid in pids {
        // One that ended meanwhile needs no signal.
        let _ = send_signal(pid, signal);
    }
    Ok(())
}

/// Answers [`JobForget`].
///
/// # Errors
/// `UnknownJob`, `Busy` while it runs, or disk errors.
pub async fn forget(cx: &CallCx, asked: JobForget) -> Result<JobForgotten, GuestError> {
    let job = cx.agent.jobs.find(&asked.job_id)?;
    off_thread(move || {
        let summary = job.summary().map_err(|error| disk(&error))?;
        if summary.exit.is_none() && !summary.interrupted {
            let message = format!("job {:?} runs; kill it first", asked.job_id);
            return Err(GuestError::new(GuestCode::Busy, message));
        }
        job.remove().map_err(|error| disk(&error))?;
        Ok(JobForgotten)
    })
    .await
}
