//! Processes: jobs with an open input.

use std::{collections::BTreeMap, time::Duration};

use chrono::Utc;
use futures::future::join_all;
use hivekeep_kernel::{CallCx, Door, JobId, Layer, ToolError, WorkspaceId, fault_point};
use hivekeep_link::{CallTerms, Link, LinkError, link_error};
use hivekeep_ports::{
    PlaceProcess, ProcessOutput, ProcessSpan, ProcessSpec, ProcessState, ProcessWindow,
    TerminalSize,
};
use hivekeep_protocol::{
    Argv, Exit, GuestCode, JobForget, JobKill, JobList, JobPoll, JobStart, JobStarted, JobSummary,
    JobWait, ProcessInput, ProcessResize, ProcessStart, ProcessStartHeld, ProcessStartWithoutInput,
    ProcessStop, PtySize, Spool,
};
use serde_json::json;

use crate::{
    commands::{
        jobs::{ask_for, has_room_for_a_job, job_id},
        runner::CommandsHandle,
        user::as_user,
    },
    handle::WorkspaceHandle,
    ledger::Ledger,
    link_state::ask_after_a_wait,
    messages::GuestMsg,
    phase::Phase,
    records::{ProcessEntry, ProcessExit, Record},
};

/// Processes of a workspace that are shown after their end.
const MOST_ENDED: usize = 100;
/// Bytes of each stream that are kept at least; the guest keeps up to twice as many.
const KEPT_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes of each stream in one poll. Both fit one frame of the link.
const POLL_BYTES: u64 = 256 * 1024;
/// Longest wait for the answer of one guest to a list.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// A recorded process.
struct Found {
    id: JobId,
    workspace: WorkspaceHandle,
    entry: ProcessEntry,
    /// The end of the process is not recorded.
    may_run: bool,
}

/// A process that is to be started.
struct Starting {
    workspace: WorkspaceHandle,
    link: Link,
    wait: CallTerms,
    job: JobId,
    entry: ProcessEntry,
    request: StartRequest,
}

/// Request that starts a process.
struct StartRequest {
    start: ProcessStart,
    without_input: bool,
    /// The process's output is held back for its reader, where the guest can do that.
    held: bool,
}

impl StartRequest {
    async fn ask(self, link: &Link, wait: CallTerms) -> Result<JobStarted, LinkError> {
        let Self { start, without_input, held } = self;
        if held {
            let request = ProcessStartHeld { start: start.clone(), without_input };
            match link.ask(request, wait.clone()).await {
                // The guest is of an older daemon.
                Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported => {}
                started => return started,
            }
        }
        match without_input {
            true => link.ask(ProcessStartWithoutInput { job: start.job }, wait).await,
            false => link.ask(start, wait).await,
        }
    }
}

impl CommandsHandle {
    pub(super) async fn start_process(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        process: ProcessSpec,
    ) -> Result<PlaceProcess, ToolError> {
        let workspace = self.workspace(workspace)?;
        let env = self.environment(cx, workspace.id, &process.command)?;
        let link = self.enter(cx, &workspace).await?;
        let (job, command) = (job_id(cx), process.command);
        let mut started_unix_ms = Utc::now().timestamp_millis().try_into().unwrap_or(0);
        if cx.again() {
            let found = self.find(cx, job).map_err(|_| ToolError::effect_unknown(Layer::Actor))?;
            if found.entry.pid != 0 {
                return Ok(PlaceProcess { state: ProcessState::Running, ..found.shown(None) });
            }
            // Its start was not recorded. The guest gives its process id when it is asked to start it again.
            let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
            ask_for(&link, job, wait).await?;
            started_unix_ms = found.entry.started_unix_ms;
        } else {
            has_room_for_a_job(&self.ledger(workspace.id)?)?;
        }
        let entry = ProcessEntry {
            argv: command.argv.clone(),
            workdir: command.workdir.clone(),
            place: process.place,
            terminal: process.terminal.is_some(),
            started_unix_ms,
            pid: 0,
            end: None,
        };
        let start = JobStart {
            job_id: job.to_string(),
            argv: as_user(&self.ledger(workspace.id)?, command.user, Argv::Direct(command.argv))?,
            env,
            workdir: Some(command.workdir),
            spool_bytes: KEPT_BYTES,
        };
        let pty = process.terminal.map(pty_size);
        let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let request = StartRequest {
            start: ProcessStart { job: start, pty },
            without_input: !process.input && pty.is_none(),
            // Clients of this door read all output, and take missing output for an error.
            held: cx.door == Door::E2b && cx.tool == "process_start",
        };
        // The start is not cancelled midway when the caller gives up.
        let starting =
            tokio::spawn(Starting { workspace, link, wait, job, entry, request }.run(self.clone()));
        let started = starting.await;
        let started =
            started.map_err(|panic| ToolError::internal(format!("a process: {panic}")))??;
        match cx.again() && started.pid == 0 {
            // The guest noted it and was cut off before it began it.
            true => Err(ToolError::effect_unknown(Layer::Guest)),
            false => Ok(started),
        }
    }

    pub(super) async fn list_processes(&self, cx: &CallCx) -> Vec<PlaceProcess> {
        let cards = self.0.directory.cards().into_iter();
        let own = cards.filter(|card| card.owner == Some(cx.session));
        let each = own.map(|card| async move {
            let workspace =
                WorkspaceHandle { id: card.id, shared: self.0.clone(), actor: card.address };
            let Ok(ledger) = self.ledger(card.id) else { return Vec::new() };
            let running = ledger.processes.keys().any(|job| ledger.jobs.contains(job));
            let told = match running {
                true => self.summaries(cx, &workspace, card.phase).await,
                false => Ok(BTreeMap::new()),
            };
            let Ledger { processes, jobs, .. } = ledger;
            let found = processes.into_iter().map(|(id, entry)| {
                let (workspace, may_run) = (workspace.clone(), jobs.contains(&id));
                Found { id, workspace, entry, may_run }
            });
            found
                .map(|found| match (found.may_run, &told) {
                    (true, Ok(told)) => found.shown(told.get(&found.id.to_string())),
                    (true, Err(state)) => {
                        PlaceProcess { state: state.clone(), ..found.shown(None) }
                    }
                    (false, _) => found.shown(None),
                })
                .collect()
        });
        let mut all: Vec<PlaceProcess> = join_all(each).await.into_iter().flatten().collect();
        all.sort_by_key(|process| (process.started_unix_ms, process.id));
        all
    }

    /// Summaries of a guest's jobs, or the state of its processes when the guest cannot be asked.
    async fn summaries(
        &self,
        cx: &CallCx,
        workspace: &WorkspaceHandle,
        phase: Phase,
    ) -> Result<BTreeMap<String, JobSummary>, ProcessState> {
        if matches!(phase, Phase::Stopped | Phase::Crashed | Phase::Failed) {
            return Err(ProcessState::Interrupted);
        }
        if phase == Phase::Parked {
            // Listing processes wakes no workspace.
            return Err(ProcessState::Unknown("the workspace is parked".to_owned()));
        }
        let patience = CallCx {
            deadline: cx.deadline.min(tokio::time::Instant::now() + LIST_PATIENCE),
            ..cx.clone()
        };
        let asked = async {
            let link = self.enter(&patience, workspace).await?;
            let wait = CallTerms { deadline: patience.deadline, cancel: cx.cancel.clone() };
            link.ask(JobList, wait).await.map_err(link_error)
        };
        let listed = asked.await.map_err(|error| ProcessState::Unknown(error.message))?;
        Ok(listed.jobs.into_iter().map(|job| (job.job_id.clone(), job)).collect())
    }

    /// A process of the session.
    fn find(&self, cx: &CallCx, id: JobId) -> Result<Found, ToolError> {
        let cards = self.0.directory.cards().into_iter();
        let mut own = cards.filter(|card| card.owner == Some(cx.session));
        let found = own.find_map(|card| {
            let mut ledger = self.0.logs.state(card.id)?;
            let entry = ledger.processes.remove(&id)?;
            let workspace =
                WorkspaceHandle { id: card.id, shared: self.0.clone(), actor: card.address };
            Some(Found { id, workspace, entry, may_run: ledger.jobs.contains(&id) })
        });
        found.ok_or_else(|| unknown(id))
    }

    pub(crate) async fn process_output(
        &self,
        cx: &CallCx,
        process: JobId,
        window: ProcessWindow,
    ) -> Result<ProcessOutput, ToolError> {
        let found = self.find(cx, process)?;
        let link = self.enter(cx, &found.workspace).await?;
        let poll = JobPoll {
            job_id: process.to_string(),
            stdout_from: window.stdout_from,
            stderr_from: window.stderr_from,
            max_bytes: window.max_bytes.min(POLL_BYTES),
        };
        let waiting = |wait_ms| JobWait { poll: poll.clone(), wait_ms };
        let report = ask_after_a_wait(cx, &link, window.wait, waiting, || poll.clone()).await;
        let report = report.map_err(link_error)?;
        let span = |spool: Spool| ProcessSpan {
            from: spool.from,
            bytes: spool.bytes,
            end: spool.kept_bytes,
            total_bytes: spool.total_bytes,
        };
        Ok(ProcessOutput {
            process: found.shown(Some(&report.summary)),
            stdout: span(report.stdout),
            stderr: span(report.stderr),
        })
    }

    pub(super) async fn process_input(
        &self,
        cx: &CallCx,
        process: JobId,
        bytes: Vec<u8>,
        close: bool,
    ) -> Result<(u64, bool), ToolError> {
        let found = self.find(cx, process)?;
        let all = bytes.len() as u64;
        let link = self.enter(cx, &found.workspace).await?;
        let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let input = ProcessInput { job_id: process.to_string(), bytes, close };
        let taken = link.ask(input, wait).await.map_err(link_error)?;
        Ok((taken.written.min(all), taken.closed))
    }

    pub(super) async fn resize_process(
        &self,
        cx: &CallCx,
        process: JobId,
        size: TerminalSize,
    ) -> Result<(), ToolError> {
        let found = self.find(cx, process)?;
        let link = self.enter(cx, &found.workspace).await?;
        let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let resize = ProcessResize { job_id: process.to_string(), size: pty_size(size) };
        link.ask(resize, wait).await.map(drop).map_err(link_error)
    }

    pub(super) async fn signal_process(
        &self,
        cx: &CallCx,
        process: JobId,
        signal: i32,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        let found = self.find(cx, process)?;
        if !found.may_run {
            return Ok((found.shown(None), true));
        }
        let link = self.enter(cx, &found.workspace).await?;
        let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let kill = JobKill { job_id: process.to_string(), signal };
        let killed = link.ask(kill, wait).await.map_err(link_error)?;
        Ok((found.shown(Some(&killed.summary)), killed.already_ended))
    }

    pub(super) async fn stop_process(
        &self,
        cx: &CallCx,
        process: JobId,
        grace: Duration,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        let found = self.find(cx, process)?;
        if !found.may_run {
            return Ok((found.shown(None), true));
        }
        let link = self.enter(cx, &found.workspace).await?;
        let wait = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
        let grace_ms = grace.as_millis().try_into().unwrap_or(u64::MAX);
        let stop = ProcessStop { job_id: process.to_string(), grace_ms };
        // A stop with a grace period does not use the capacity reserved for kills.
        let killed = match grace_ms {
            0 => link.ask_reserved(stop, wait).await,
            _ => link.ask(stop, wait).await,
        };
        let killed = killed.map_err(link_error)?;
        Ok((found.shown(Some(&killed.summary)), killed.already_ended))
    }
}

impl Starting {
    async fn run(self, commands: CommandsHandle) -> Result<PlaceProcess, ToolError> {
        let Self { workspace, link, wait, job, mut entry, request } = self;
        make_room(&commands.ledger(workspace.id)?, &workspace, &link, &wait).await?;
        // The intent comes first: whatever happens now, the process is known.
        let process = Box::new(entry.clone());
        workspace.note(Record::ProcessWanted { job, process }).await?;
        fault_point!("job.after_intent");
        let started = match request.ask(&link, wait).await {
            Ok(started) => started,
            Err(error) => {
                // A job of another command is there, and goes on.
                if let LinkError::Guest(error) = &error
                    && error.code != GuestCode::JobConflict
                {
                    workspace.note(Record::JobRefused { job }).await?;
                }
                return Err(link_error(error).detail("id", job.to_string()));
            }
        };
        fault_point!("job.after_start");
        entry.pid = started.pid;
        let record = Record::ProcessStarted { job, pid: started.pid };
        workspace.commit(vec![record], Some(("job.started", json!({ "job_id": job })))).await?;
        let _actor_follows = workspace.actor.send(GuestMsg::FollowJobs.into());
        let found = Found { id: job, workspace, entry, may_run: true };
        Ok(PlaceProcess { state: ProcessState::Running, ..found.shown(None) })
    }
}

fn pty_size(size: TerminalSize) -> PtySize {
    PtySize { rows: size.rows, cols: size.cols }
}

/// Forgets the processes that ended first, beyond those that are shown.
async fn make_room(
    ledger: &Ledger,
    workspace: &WorkspaceHandle,
    link: &Link,
    wait: &CallTerms,
) -> Result<(), ToolError> {
    let ended = ledger.processes.iter().filter(|(job, _)| !ledger.jobs.contains(job));
    let mut ended: Vec<_> = ended.map(|(job, entry)| (entry.started_unix_ms, *job)).collect();
    ended.sort_unstable();
    let surplus = ended.len().saturating_sub(MOST_ENDED - 1);
    for (_, job) in ended.into_iter().take(surplus) {
        match link.ask(JobForget { job_id: job.to_string() }, wait.clone()).await {
            Ok(_) | Err(LinkError::Guest(_)) => {}
            Err(error) => return Err(link_error(error)),
        }
        workspace.note(Record::ProcessForgotten { job }).await?;
    }
    Ok(())
}

impl Found {
    /// The process as callers see it. `told` is the guest's summary, if it was asked and knows the process.
    fn shown(&self, told: Option<&JobSummary>) -> PlaceProcess {
        let recorded = self.entry.end.filter(|_| !self.may_run);
        let state = told.map_or_else(
            || match recorded {
                Some(ProcessExit { code: Some(code), .. }) => ProcessState::Exited(code),
                Some(ProcessExit { signal: Some(signal), .. }) => ProcessState::Signalled(signal),
                _ => ProcessState::Interrupted,
            },
            state_of,
        );
        let recorded_end = recorded.and_then(|end| end.at_unix_ms);
        PlaceProcess {
            id: self.id,
            workspace: self.workspace.id,
            place: self.entry.place.clone(),
            argv: self.entry.argv.clone(),
            workdir: self.entry.workdir.clone(),
            terminal: self.entry.terminal,
            pid: self.entry.pid,
            started_unix_ms: self.entry.started_unix_ms,
            state,
            ended_unix_ms: told.map_or(recorded_end, |told| told.finished_unix_ms),
        }
    }
}

fn state_of(told: &JobSummary) -> ProcessState {
    match told.exit {
        _ if told.interrupted => ProcessState::Interrupted,
        Some(Exit::Code(code)) => ProcessState::Exited(code),
        Some(Exit::Signal(signal)) => ProcessState::Signalled(signal),
        None => ProcessState::Running,
    }
}

fn unknown(id: JobId) -> ToolError {
    let code = hivekeep_link::guest_code(GuestCode::UnknownJob);
    ToolError::not_found(Layer::Resolve, code, "process of yours", &id.to_string())
        .next("process_list shows them")
}
