//! Commands and background jobs in one workspace: their rows, and a command that is waited for.

pub(crate) mod api;
pub(crate) mod env;
pub(crate) mod jobs;
pub(crate) mod parallel;
pub(crate) mod runner;
pub(crate) mod user;

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, tools};
use hivekeep_link::{CallTerms, ExecOutput, Link};
use hivekeep_protocol::{Argv, Exit, RunCommand, Stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    api::{EnvSet, Exec, ExecBackground, ExecResult, JobAction, JobView, SetEnv},
    env::{environment, working_dir},
    user::as_user,
};
use crate::{codes, messages::ExecRequest, state::Workspace};

/// Time that the guest's answer is awaited beyond the command's own limit.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_secs(10);
/// Shortest interval between progress reports of a running command.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

tools! { pub FAMILY: "execution" for Workspace, addressed workspace by workspace_id;
    exec: Exec => ExecResult = exec {
        title: "Run a command", rate: RateClass::Exec, open_world: true, timeout_secs: 120,
        result_budget_bytes: 40 * 1024 * 1024, keyed: true,
    };
    exec_background: ExecBackground => JobView = on_exec_background {
        title: "Background jobs", rate: RateClass::Exec, open_world: true, weight: start_takes_one,
        keyed: true,
    };
    set_env: SetEnv => EnvSet = env::set_env {
        title: "Set environment variables", effect: Idempotent,
    };
}

/// Only starting a job takes a token; looking at it and ending it are free.
fn start_takes_one(input: &serde_json::Value) -> u32 {
    u32::from(input.get("action").and_then(|action| action.as_str()) == Some("start"))
}

fn on_exec_background(
    state: &mut Workspace,
    cx: &CallCx,
    input: ExecBackground,
) -> Result<Reply<JobView>, ToolError> {
    match input.action {
        JobAction::Start { command, workdir, user, env } => {
            jobs::job_start(state, cx, command, workdir, user, env.unwrap_or_default())
        }
        JobAction::Poll { job_id, stdout_from, stderr_from } => {
            jobs::job_poll(state, cx, job_id, stdout_from.unwrap_or(0), stderr_from.unwrap_or(0))
        }
        JobAction::Kill { .. } if cx.again() => Err(ToolError::effect_unknown(Layer::Actor)),
        JobAction::Kill { job_id, signal } => {
            jobs::job_kill(state, cx, job_id, signal.unwrap_or(9))
        }
    }
}

/// `exec`.
///
/// # Errors
/// When the workspace does not run or the input is invalid.
pub(crate) fn exec(
    state: &mut Workspace,
    cx: &CallCx,
    input: Exec,
) -> Result<Reply<ExecResult>, ToolError> {
    let link = state.guest(cx)?;
    let limit = Duration::from_secs(input.timeout_secs);
    let request = RunCommand {
        argv: as_user(&state.ledger, input.user, Argv::Shell(input.command))?,
        env: environment(&state.ledger, cx.trace.as_ref(), input.env)?,
        workdir: working_dir(&state.ledger, input.workdir),
        timeout_ms: input.timeout_secs * 1000,
        max_output_bytes: input.max_output_bytes,
    };
    let (cx, closing) = (cx.clone(), state.handle.shared.daemon.closing.clone());
    Ok(Reply::later(async move {
        let link = link.await?;
        let deadline = (Instant::now() + limit + ANSWER_MARGIN).min(cx.deadline);
        let wait = CallTerms { deadline, cancel: cx.cancel.clone() };
        if let Some(output) = once(&cx, &link, &request, false, &wait, &closing).await? {
            return finish(output, limit);
        }
        let output =
            link.exec(request, wait, teller(&cx)).await.map_err(hivekeep_link::link_error)?;
        finish(output, limit)
    }))
}

/// Runs a command of a call with a key, or gives what an attempt before this one came to. `None` for other calls, and
/// where the guest is of an older daemon.
///
/// # Errors
/// `effect_unknown`, and those of a command.
pub(crate) async fn once(
    cx: &CallCx,
    link: &Link,
    request: &RunCommand,
    tail: bool,
    wait: &CallTerms,
    closing: &CancellationToken,
) -> Result<Option<ExecOutput>, ToolError> {
    let Some(effect) = &cx.effect else { return Ok(None) };
    let ran = link.exec_once(effect, request.clone(), tail, wait.clone(), closing).await;
    ran.map_err(hivekeep_link::link_error)
}

/// Runs a command of `exec_parallel`.
pub(crate) fn exec_for(state: &mut Workspace, request: ExecRequest) {
    let ExecRequest { cx, session, input, reply } = request;
    let outcome = state.authorize_session(session).and_then(|()| exec(state, &cx, input));
    match outcome {
        Ok(Reply::Now(result)) => drop(reply.send(Ok(result))),
        Err(error) => drop(reply.send(Err(error))),
        Ok(Reply::Later(work)) => {
            let _detached = state.ops.spawn(async move { drop(reply.send(work.await)) });
        }
    }
}

/// Reports the last line of output as progress, at a limited rate.
pub(crate) fn teller(cx: &CallCx) -> impl FnMut(Stream, &[u8]) + Send + use<> {
    let progress = cx.progress.clone();
    let (mut seen, mut told) = (0u64, Instant::now());
    move |_, bytes| {
        seen += bytes.len() as u64;
        if !progress.wanted() || told.elapsed() < PROGRESS_EVERY {
            return;
        }
        told = Instant::now();
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().next_back().unwrap_or_default();
        #[allow(clippy::cast_precision_loss)]
        progress.report(seen as f64, None, last.chars().take(200).collect::<String>());
    }
}

fn finish(output: ExecOutput, limit: Duration) -> Result<ExecResult, ToolError> {
    let (stdout, stderr) = (output.stdout.text(), output.stderr.text());
    let done = output.done;
    if done.timed_out {
        let message = format!(
            "the command did not end within {} s; its process tree was killed",
            limit.as_secs()
        );
        return Err(ToolError::new(Layer::Guest, codes::EXEC_TIMED_OUT, message)
            .next("give a larger timeout_secs, or start it with exec_background")
            .detail("timeout_secs", limit.as_secs())
            .detail("stdout", stdout.text)
            .detail("stderr", stderr.text));
    }
    let (exit_code, signal) = exit_code(done.exit);
    Ok(ExecResult {
        exit_code,
        signal,
        truncated: stdout.truncated || stderr.truncated,
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_bytes: done.stdout_total_bytes,
        stderr_bytes: done.stderr_total_bytes,
        killed_stragglers: done.killed_stragglers,
        elapsed_ms: done.elapsed_ms,
    })
}

/// Exit code and signal of a command; as in shells, a signal's code is 128 plus its number.
pub(crate) fn exit_code(exit: Exit) -> (i32, Option<i32>) {
    match exit {
        Exit::Code(code) => (code, None),
        Exit::Signal(signal) => (signal.saturating_add(128), Some(signal)),
    }
}
