//! Followers of processes: readers that ask for what is new, at the pace of their client.

use std::time::Duration;

use hivekeep_hub::codes;
use hivekeep_kernel::{
    CallCx, CallId, Door, JobId, Layer, Progress, SessionId, ToolError,
    ports::{CommandRunner, ProcessOutput, ProcessSpan, ProcessState, ProcessWindow},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    client::Follower,
    frame::{FollowFrom, ToldFrame},
};

/// Bytes of a stream in one read.
const MOST_BYTES: u64 = 32 * 1024;
/// Time for one read.
const READ_TIME: Duration = Duration::from_secs(30);
/// Longest pause between two looks at a process that says nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Sessions that are asked for a process that names none.
const MOST_SESSIONS: usize = 256;

/// Context of a read on behalf of a session.
fn context(session: SessionId) -> CallCx {
    CallCx {
        id: CallId::new(),
        session,
        tool: "process_output",
        caller: None,
        door: Door::HttpApi,
        view: Default::default(),
        deadline: Instant::now() + READ_TIME,
        cancel: CancellationToken::new(),
        progress: Progress::default(),
        receipt: Default::default(),
        slot: Default::default(),
        reserved: None,
        trace: None,
        client: None,
        span: tracing::Span::none(),
    }
}

async fn read(
    runner: &dyn CommandRunner,
    session: SessionId,
    id: JobId,
    window: ProcessWindow,
) -> Result<ProcessOutput, ToolError> {
    let cx = context(session);
    cx.guard(runner.output(&cx, id, window)).await
}

/// Sessions of the caller's that may own the process.
async fn candidates(this: &Follower) -> Vec<SessionId> {
    let reaches_all = this.caller.is_operator();
    let rows = this.seat.core.sessions.list().await.into_iter();
    rows.filter(|row| row.ended_at.is_none())
        .filter(|row| reaches_all || row.user == Some(this.caller.user))
        .map(|row| row.session)
        .filter(|session| this.frame.session.is_none_or(|asked| asked == *session))
        .take(MOST_SESSIONS)
        .collect()
}

/// Tells output and state of a process until it has ended.
///
/// # Errors
/// `hub_channel_refused` for one that is not of the caller's sessions, and for a caller that has none.
pub(super) async fn follow(this: &Follower, id: JobId) -> Result<(), ToolError> {
    if !this.caller.may_change() {
        let why = "a read-only credential reads no output of processes";
        return Err(ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, why)
            .next("show a credential of the scope session or operator"));
    }
    let core = &this.seat.core;
    let runner = core.ports.need::<dyn CommandRunner>()?;
    let at = |stream: &str| match &this.frame.from {
        None => Ok(0),
        Some(FollowFrom::Output(from)) => Ok(from.get(stream).copied().unwrap_or(0)),
        Some(FollowFrom::Event(_)) => {
            Err(ToolError::invalid("`from` is not `{\"stdout\": n, \"stderr\": n}`"))
        }
    };
    let (stdout_from, stderr_from) = (at("stdout")?, at("stderr")?);
    let mut window =
        ProcessWindow { stdout_from, stderr_from, max_bytes: MOST_BYTES, wait: Duration::ZERO };
    let mut found = None;
    for session in candidates(this).await {
        if let Ok(output) = read(runner.as_ref(), session, id, window).await {
            found = Some((session, output));
            break;
        }
    }
    let Some((session, mut output)) = found else {
        let what = format!("no session of yours has a process {id}");
        return Err(ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, what)
            .next("process_list shows a session's processes"));
    };
    let _seat = this.seat.seat(&this.name);
    let position = json!({ "stdout": stdout_from, "stderr": stderr_from });
    if !this.acknowledge(position).await {
        return Ok(());
    }
    let poll = Duration::from_millis(core.config.hub.poll_ms);
    let (mut pause, mut told_state) = (poll, None);
    loop {
        let running = output.process.state == ProcessState::Running;
        let before = window;
        window.stdout_from =
            tell(this, id, ("stdout", window.stdout_from), &output.stdout, running).await?;
        window.stderr_from =
            tell(this, id, ("stderr", window.stderr_from), &output.stderr, running).await?;
        let quiet = before == window;
        let state = status(&output.process.state);
        if told_state.as_ref() != Some(&state) && (running || quiet) {
            let frame = ToldFrame::of("process_status", &this.name, state.clone());
            if !this.tell(frame.with("processId", json!(id))).await {
                return Ok(());
            }
            told_state = Some(state);
        }
        if quiet && is_over(&output.process.state) {
            this.tell(ToldFrame::of("end", &this.name, Value::Null)).await;
            return Ok(());
        }
        pause = if quiet { (pause * 2).min(LONGEST_PAUSE) } else { poll };
        if quiet {
            tokio::time::sleep(pause).await;
        }
        output = read(runner.as_ref(), session, id, window).await?;
    }
}

/// Tells what a stream has, and what of it was lost; the position behind it.
async fn tell(
    this: &Follower,
    id: JobId,
    (stream, asked): (&str, u64),
    span: &ProcessSpan,
    running: bool,
) -> Result<u64, ToolError> {
    let gone = || ToolError::cancelled();
    let named = |kind, data| {
        let frame = ToldFrame::of(kind, &this.name, data);
        frame.with("processId", json!(id)).with("stream", json!(stream))
    };
    if span.from > asked {
        let missed = json!({ "first": asked, "last": span.from - 1 });
        if !this.tell(named("missed", missed)).await {
            return Err(gone());
        }
    }
    let (text, next) = span.text(running);
    if !text.is_empty() {
        let frame = named("process_output", json!(text)).with("cursor", json!(next));
        if !this.tell(frame).await {
            return Err(gone());
        }
    }
    Ok(next)
}

fn is_over(state: &ProcessState) -> bool {
    match state {
        ProcessState::Running | ProcessState::Unknown(_) => false,
        ProcessState::Exited(_) | ProcessState::Signalled(_) | ProcessState::Interrupted => true,
    }
}

fn status(state: &ProcessState) -> Value {
    match state {
        ProcessState::Running => json!({ "status": "running" }),
        ProcessState::Exited(code) => json!({ "status": "exited", "exitCode": code }),
        ProcessState::Signalled(signal) => json!({ "status": "killed", "signal": signal }),
        ProcessState::Interrupted => json!({ "status": "interrupted" }),
        ProcessState::Unknown(reason) => json!({ "status": "unknown", "reason": reason }),
    }
}
