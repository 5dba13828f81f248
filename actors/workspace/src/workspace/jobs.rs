//! Background jobs: started, read, signalled; each followed by an actor.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::{
    CallCx, Fault, JobId, Layer, Reply, RestartPolicy, ToolError, fault_point, ports::text_part,
};
use hivekeep_link::{LinkError, link_error};
use hivekeep_protocol::{
    Argv, JobKill, JobPoll, JobReport, JobStart,
    limits::{DEFAULT_SPOOL_BYTES, MAX_JOBS},
};
use serde_json::json;

use super::{Workspace, exec::exit_code, link_state, user::as_user};
use crate::{
    api::execution::JobView,
    codes,
    job::{self, Job},
    ledger::Ledger,
    phase::Want,
    records::Record,
};

/// Bytes of each stream in one poll. Both fit one frame of the link.
const POLL_BYTES: u64 = 256 * 1024;

impl Workspace {
    /// `exec_background`, action `start`.
    ///
    /// # Errors
    /// When the workspace does not run or the input is invalid.
    pub(crate) fn job_start(
        &mut self,
        cx: &CallCx,
        command: String,
        workdir: Option<String>,
        user: Option<String>,
        env: BTreeMap<String, String>,
    ) -> Result<Reply<JobView>, ToolError> {
        self.on(Want::Guest)?;
        // Checked here too, as each job is an actor and the guest may not keep to its own limit.
        has_room_for_a_job(&self.ledger)?;
        let job = JobId::new();
        let request = JobStart {
            job_id: job.to_string(),
            argv: as_user(&self.ledger, user, Argv::Shell(command.clone()))?,
            env: self.environment(cx.trace.as_ref(), env)?,
            workdir: self.working_dir(workdir),
            spool_bytes: DEFAULT_SPOOL_BYTES,
        };
        let (mut link_state, cx, workspace) =
            (self.link_state.subscribe(), cx.clone(), self.handle.clone());
        let patience = Duration::from_secs(workspace.shared.options.link_wait_secs);
        let ops = self.ops.clone();
        Ok(Reply::later(async move {
            let _keeps_the_work_alive = ops;
            let link = cx.guard(link_state::usable(&mut link_state, patience)).await?;
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
            let _actor_follows = workspace.actor.send(super::Msg::FollowJobs);
            Ok(JobView {
                job_id: job.to_string(),
                status: Some("started".to_owned()),
                ..JobView::default()
            })
        }))
    }

    /// `exec_background`, action `poll`.
    ///
    /// # Errors
    /// When the workspace does not run.
    pub(crate) fn job_poll(
        &mut self,
        cx: &CallCx,
        job: JobId,
        stdout_from: u64,
        stderr_from: u64,
    ) -> Result<Reply<JobView>, ToolError> {
        self.on(Want::Guest)?;
        let (mut link_state, cx) = (self.link_state.subscribe(), cx.clone());
        let patience = Duration::from_secs(self.handle.shared.options.link_wait_secs);
        Ok(Reply::later(async move {
            let link = cx.guard(link_state::usable(&mut link_state, patience)).await?;
            let poll = JobPoll {
                job_id: job.to_string(),
                stdout_from,
                stderr_from,
                max_bytes: POLL_BYTES,
            };
            let report = link.ask(poll, link_state::wait(&cx)).await.map_err(link_error)?;
            Ok(view(job, report))
        }))
    }

    /// `exec_background`, action `kill`.
    ///
    /// # Errors
    /// When the workspace does not run or the signal is invalid.
    pub(crate) fn job_kill(
        &mut self,
        cx: &CallCx,
        job: JobId,
        signal: i32,
    ) -> Result<Reply<JobView>, ToolError> {
        self.on(Want::Guest)?;
        let (mut link_state, cx) = (self.link_state.subscribe(), cx.clone());
        let patience = Duration::from_secs(self.handle.shared.options.link_wait_secs);
        Ok(Reply::later(async move {
            let link = cx.guard(link_state::usable(&mut link_state, patience)).await?;
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
    pub(super) fn follow_jobs(&mut self) -> Result<(), Fault> {
        for job in self.ledger.jobs.clone() {
            if self.jobs.contains_key(&job) {
                continue;
            }
            let name = job.to_string();
            let address = self.children.address(&name, "job", RestartPolicy::ENTITY);
            let seed = job::Seed {
                job,
                workspace: self.handle.clone(),
                link_state: self.link_state.subscribe(),
            };
            self.children.start::<Job>(&name, RestartPolicy::ENTITY, &address, seed)?;
            self.jobs.insert(job, address);
        }
        Ok(())
    }

    /// Handles the guest's event that a job ended: the job's actor asks how.
    pub(super) fn job_ended_in_guest(&self, job: &str) {
        let address = job.parse().ok().and_then(|job: JobId| self.jobs.get(&job));
        if let Some(address) = address {
            let _ended_already = address.send(job::Msg::Look);
        }
    }
}

/// # Errors
/// `guest_busy` with as many jobs as a guest may have.
pub(crate) fn has_room_for_a_job(ledger: &Ledger) -> Result<(), ToolError> {
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
