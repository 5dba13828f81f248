//! Background jobs. Each is run by a [`shim`] process of its own, so that a job
//! and its output outlive the call, the link and this daemon; what is known of it
//! is in its [`dir`], and nowhere else.
//!
//! A job that the host starts runs until the last of its processes ends; its exit is its leader's.
//! One that the queue of [`crate::tasks`] starts ends with its leader, and at its limit. A
//! [`process`] has an open input.

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
pub mod watch;

use std::io;

use hivekeep_protocol::{
    GuestCode, GuestError, JobForget, JobForgotten, JobKill, JobKilled, JobListReply as JobsReply,
    JobPoll, JobReport, JobStart, JobStarted,
};

use crate::files::off_thread;
use crate::session::call::RequestContext;
pub use folder::JobsFolder;
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
        watch::one(&cx.agent, cx.agent.jobs.find(&id)?);
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
