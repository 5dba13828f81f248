//! Background jobs. Each is run by a [`shim`] process of its own, so that a job
//! and its output outlive the call, the link and this daemon; what is known of it
//! is in its [`dir`], and nowhere else.
//!
//! A job that the host starts runs until the last of its processes ends; its exit is its leader's.
//! One that the queue of [`crate::tasks`] starts ends with its leader, and at its limit. A
//! [`process`] has an open input.
//!
//! The shim is no child of this daemon (it has to outlive it), so its end is seen through a pidfd.

pub mod dir;
pub(crate) mod end;
pub(crate) mod folder;
mod input;
pub mod process;
mod segments;
pub mod shim;
mod spool;
pub(crate) mod start;
pub(crate) mod wait;

use std::io;
use std::sync::Arc;

use hivekeep_protocol::{
    GuestCode, GuestError, GuestEvent, JobForget, JobForgotten, JobKill, JobKilled,
    JobListReply as JobsReply, JobPoll, JobReport, JobStart, JobStarted,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub use folder::JobsFolder;

use crate::agent::Agent;
use crate::files::off_thread;
use crate::session::call::RequestContext;
use crate::sys::descriptors;
use dir::{JobDir, JobState};
use folder::disk;
use start::Wanted;

/// Answers [`JobStart`].
///
/// # Errors
/// `Invalid`, `JobConflict`, `Busy` with too many jobs, `CannotStart`, disk errors.
pub async fn start(cx: &RequestContext, asked: JobStart) -> Result<JobStarted, GuestError> {
    start_wanted(cx, Wanted { start: asked, process: None }).await
}

async fn start_wanted(cx: &RequestContext, asked: Wanted) -> Result<JobStarted, GuestError> {
    let (agent, id) = (cx.agent.clone(), asked.start.job_id.clone());
    let started = off_thread(move || start::start(&agent, asked)).await?;
    if !started.existed {
        watch_one(&cx.agent, cx.agent.jobs.find(&id)?);
    }
    Ok(started)
}

/// Answers [`JobPoll`].
///
/// # Errors
/// `UnknownJob`, or disk errors.
pub async fn poll(cx: &RequestContext, asked: JobPoll) -> Result<JobReport, GuestError> {
    let job = cx.agent.jobs.find(&asked.job_id)?;
    process::note_read(&job, &asked).await;
    off_thread(move || job.report(asked.stdout_from, asked.stderr_from, asked.max_bytes))
        .await
        .map_err(|error| disk(&error))
}

/// Answers [`hivekeep_protocol::JobList`].
///
/// # Errors
/// Disk errors.
pub async fn list(cx: &RequestContext) -> Result<JobsReply, GuestError> {
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
pub async fn kill(cx: &RequestContext, asked: JobKill) -> Result<JobKilled, GuestError> {
    if !(1..=64).contains(&asked.signal) {
        let message = format!("{} is not a valid signal", asked.signal);
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let job = cx.agent.jobs.find(&asked.job_id)?;
    let contain = cx.agent.contain.clone();
    let (already_ended, summary) = off_thread(move || {
        let summary = job.summary()?;
        if summary.exit.is_some() || summary.interrupted {
            return Ok((true, summary));
        }
        end::signal(&contain, &job, asked.signal)?;
        Ok((false, job.summary()?))
    })
    .await
    .map_err(|error: io::Error| disk(&error))?;
    Ok(JobKilled { already_ended, summary })
}

/// Answers [`JobForget`].
///
/// # Errors
/// `UnknownJob`, `Busy` while it runs, or disk errors.
pub async fn forget(cx: &RequestContext, asked: JobForget) -> Result<JobForgotten, GuestError> {
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

/// Watches the jobs that an earlier daemon started and that still run.
pub fn watch_all(agent: &Arc<Agent>) {
    for job in agent.jobs.all().unwrap_or_default() {
        if job.is_locked() {
            watch_one(agent, job);
        }
    }
}

/// Watches one job. Must be called within the runtime.
pub fn watch_one(agent: &Arc<Agent>, job: JobDir) {
    let agent = agent.clone();
    tokio::spawn(async move {
        if let Err(error) = ended(&job).await {
            crate::say!("job {}: cannot watch it: {error}", job.id());
            return;
        }
        let contain = agent.contain.clone();
        let ended = off_thread(move || {
            let process = job.spec()?.process.is_some();
            if process && matches!(job.state(true)?, JobState::Lost) {
                // Its shim was killed, and would have ended all of it.
                end::clear_after_shim(&contain, &job);
            }
            contain.remove_job(&job.id());
            job.summary()
        });
        if let Ok(summary) = ended.await {
            agent.links.tell(&GuestEvent::JobEnded(summary));
        }
    });
}

/// Resolves when the job's shim has ended, or at once when it has not said who it is.
///
/// # Errors
/// When it cannot be watched.
pub(crate) async fn ended(job: &JobDir) -> std::io::Result<()> {
    let Some(process) = job.process()? else { return Ok(()) };
    let pid = Pid::from_raw(process.shim_pid).ok_or(std::io::ErrorKind::InvalidData)?;
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Looked at after the opening: while the lock is held, the pid is the shim's.
    if !job.is_locked() {
        return Ok(());
    }
    let pidfd = descriptors::readable(pidfd)?;
    pidfd.readable().await?.retain_ready();
    Ok(())
}
