//! Background jobs: started, read, signalled; each followed by an actor.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, EffectKey, Fault, JobId, Layer, Reply, ToolError, fault_point};
use hivekeep_link::{CallTerms, Link, LinkError, link_error};
use hivekeep_ports::text_part;
use hivekeep_protocol::{
    Argv, GuestCode, JobKill, JobPoll, JobReport, JobStart,
    limits::{DEFAULT_SPOOL_BYTES, MAX_JOBS},
};
use serde_json::json;

use crate::{
    codes,
    commands::{
        api::JobView,
        env::{environment, working_dir},
        exit_code,
        user::as_user,
    },
    job,
    ledger::Ledger,
    link_state,
    messages::GuestMsg,
    records::Record,
    state::Workspace,
};

/// Bytes of each stream in one poll. Both fit one frame of the link.
const POLL_BYTES: u64 = 256 * 1024;

/// `exec_background`, action `start`.
///
/// # Errors
/// When the workspace does not run or the input is invalid.
pub(super) fn job_start(
    state: &mut Workspace,
    cx: &CallCx,
    command: String,
    workdir: Option<String>,
    user: Option<String>,
    env: BTreeMap<String, String>,
) -> Result<Reply<JobView>, ToolError> {
    let link = state.guest(cx)?;
    let job = job_id(cx);
    if cx.again() {
        let cx = cx.clone();
        return Ok(Reply::later(async move {
            ask_for(&link.await?, job, link_state::wait(&cx)).await?;
            Ok(started(job))
        }));
    }
    // Checked here too, as each job is an actor and the guest may not keep to its own limit.
    has_room_for_a_job(&state.ledger)?;
    let request = JobStart {
        job_id: job.to_string(),
        argv: as_user(&state.ledger, user, Argv::Shell(command.clone()))?,
        env: environment(&state.ledger, cx.trace.as_ref(), env)?,
        workdir: working_dir(&state.ledger, workdir),
        spool_bytes: DEFAULT_SPOOL_BYTES,
    };
    let (cx, workspace, ops) = (cx.clone(), state.handle.clone(), state.ops.clone());
    Ok(Reply::later(async move {
        let _keeps_the_work_alive = ops;
        let link = link.await?;
        // The intent comes first: whatever happens now, the job is known.
        workspace.note(Record::JobWanted { job, command }).await?;
        fault_point!("job.after_intent");
        if let Err(error) = link.ask(request, link_state::wait(&cx)).await {
            if let LinkError::Guest(_) = &error {
                workspace.note(Record::JobRefused { job }).await?;
            }
            return Err(link_error(error).detail("job_id", job.to_string()));
        }
        fault_point!("job.after_start");
        workspace.publish("job.started", json!({ "job_id": job }));
        let _actor_follows = workspace.actor.send(GuestMsg::FollowJobs.into());
        Ok(started(job))
    }))
}

fn started(job: JobId) -> JobView {
    let status = Some("started".to_owned());
    JobView { job_id: job.to_string(), status, ..JobView::default() }
}

/// Id of the job that a call starts: of a call with a key always the same.
pub(super) fn job_id(cx: &CallCx) -> JobId {
    let keyed = |effect: &Arc<EffectKey>| {
        let hash = blake3::hash(effect.key.as_bytes()).to_hex();
        format!("{}_{}", JobId::PREFIX, &hash[..32]).parse().ok()
    };
    cx.effect.as_ref().and_then(keyed).unwrap_or_else(JobId::new)
}

/// Asks the guest for a job that a call may have started before.
///
/// # Errors
/// `effect_unknown` where the guest has no such job.
pub(super) async fn ask_for(link: &Link, job: JobId, wait: CallTerms) -> Result<(), ToolError> {
    let poll = JobPoll { job_id: job.to_string(), stdout_from: 0, stderr_from: 0, max_bytes: 0 };
    link.ask(poll, wait).await.map(drop).map_err(|error| match error {
        LinkError::Guest(error) if error.code == GuestCode::UnknownJob => {
            ToolError::effect_unknown(Layer::Guest)
        }
        error => link_error(error),
    })
}

/// `exec_background`, action `poll`.
///
/// # Errors
/// When the workspace does not run.
pub(super) fn job_poll(
    state: &mut Workspace,
    cx: &CallCx,
    job: JobId,
    stdout_from: u64,
    stderr_from: u64,
) -> Result<Reply<JobView>, ToolError> {
    let (link, cx) = (state.guest(cx)?, cx.clone());
    Ok(Reply::later(async move {
        let link = link.await?;
        let poll =
            JobPoll { job_id: job.to_string(), stdout_from, stderr_from, max_bytes: POLL_BYTES };
        let report = link.ask(poll, link_state::wait(&cx)).await.map_err(link_error)?;
        Ok(view(job, report))
    }))
}

/// `exec_background`, action `kill`.
///
/// # Errors
/// When the workspace does not run or the signal is invalid.
pub(super) fn job_kill(
    state: &mut Workspace,
    cx: &CallCx,
    job: JobId,
    signal: i32,
) -> Result<Reply<JobView>, ToolError> {
    let (link, cx) = (state.guest(cx)?, cx.clone());
    Ok(Reply::later(async move {
        let link = link.await?;
        let kill = JobKill { job_id: job.to_string(), signal };
        let killed = link.ask(kill, link_state::wait(&cx)).await.map_err(link_error)?;
        let running = killed.summary.exit.is_none() && !killed.summary.interrupted;
        let status = match (killed.already_ended, running) {
            (true, _) => "already_ended",
            (false, true) => "signalled",
            (false, false) => "killed",
        };
        Ok(JobView {
            job_id: job.to_string(),
            status: Some(status.to_owned()),
            running: Some(running),
            signal: Some(signal),
            ..JobView::default()
        })
    }))
}

/// Has an actor follow each job that is not known to have ended.
pub(crate) fn follow(state: &mut Workspace) -> Result<(), Fault> {
    for job in state.ledger.jobs.clone() {
        let (workspace, link_state) = (state.handle.clone(), state.link.subscribe());
        let args = job::Args { job, workspace, link_state };
        state.jobs.follow(&mut state.children, args)?;
    }
    Ok(())
}

/// # Errors
/// `guest_busy` with as many jobs as a guest may have.
pub(super) fn has_room_for_a_job(ledger: &Ledger) -> Result<(), ToolError> {
    if ledger.jobs.len() < MAX_JOBS {
        return Ok(());
    }
    let message = format!("{MAX_JOBS} jobs are not known to have ended");
    Err(ToolError::new(Layer::Actor, codes::GUEST_BUSY, message)
        .next("wait for some to end, or end them: workspace_info lists them")
        .retry_after(Duration::from_secs(1)))
}

fn view(job: JobId, report: JobReport) -> JobView {
    let running = report.summary.exit.is_none() && !report.summary.interrupted;
    let exit = report.summary.exit.map(exit_code);
    let (stdout, stdout_next) = text_part(report.stdout.from, &report.stdout.bytes, running);
    let (stderr, stderr_next) = text_part(report.stderr.from, &report.stderr.bytes, running);
    JobView {
        job_id: job.to_string(),
        running: Some(running),
        exit_code: exit.map(|(code, _)| code),
        signal: exit.and_then(|(_, signal)| signal),
        interrupted: report.summary.interrupted.then_some(true),
        stdout: Some(stdout),
        stderr: Some(stderr),
        stdout_next: Some(stdout_next),
        stderr_next: Some(stderr_next),
        stdout_bytes: Some(report.stdout.total_bytes),
        stderr_bytes: Some(report.stderr.total_bytes),
        ..JobView::default()
    }
}
