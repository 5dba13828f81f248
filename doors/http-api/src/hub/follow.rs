//! Followers of events and of processes. Each read of a process is a call of `process_output` in the process's session,
//! which waits for something new, at the pace of the client and of the session's rate.

use std::{sync::Arc, time::Duration};

use hivekeep_door_server::{
    event_feed::{EventFeed, EventFilter, FeedItem},
    tool_calls::{CallOrigin, part_of},
};
use hivekeep_hub::codes;
use hivekeep_kernel::{CallCx, Door, JobId, Layer, SessionId, ToolError};
use hivekeep_ports::{CommandRunner, ProcessWindow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    client::Follower,
    frame::{FollowFrom, HubChannel, ToldFrame},
};

/// Tells the events of a channel, from the position that was asked for or from now on.
///
/// # Errors
/// `invalid_input` for another kind of position.
pub(super) async fn events(this: &Follower, channel: HubChannel) -> Result<(), ToolError> {
    let core = &this.seat.core;
    let from = match &this.frame.from {
        None => core.journal.events().last().get() + 1,
        Some(FollowFrom::Event(seq)) => *seq,
        Some(FollowFrom::Output(_)) => {
            return Err(ToolError::invalid("`from` is not the number of an event"));
        }
    };
    let (within, subject) = channel.events();
    let filter = EventFilter { kinds: this.frame.kinds.clone(), within, subject };
    let position = (Some(from), core.config.hub.max_behind);
    let mut feed = EventFeed::new(core, &this.caller, position, filter, this.seat.end.clone());
    let _seat = this.seat.seat(&this.name);
    if !this.acknowledge(json!(from)).await {
        return Ok(());
    }
    while let Some(item) = feed.next().await {
        let frame = match &item {
            FeedItem::Event(event) => ToldFrame::of("event", &this.name, json!(**event)),
            FeedItem::Missed(first, last) => {
                ToldFrame::of("missed", &this.name, json!({ "first": first, "last": last }))
            }
        };
        if !this.tell(frame.with("cursor", json!(item.seq().next()))).await {
            break;
        }
    }
    Ok(())
}

/// Tool that reads output.
const READS: &str = "process_output";
/// Longest wait of one read.
const WAIT_SECS: u64 = 25;
/// Time for a look at whether a process is of a session.
const LOOK_TIME: Duration = Duration::from_secs(30);
/// Sessions that are asked for a process that names none.
const MOST_SESSIONS: usize = 256;

/// Result of a read.
#[derive(Debug, Deserialize)]
struct OutputPart {
    /// Text of stdout; `stderr` has its own.
    output: String,
    #[serde(default)]
    stderr: String,
    stdout_next: u64,
    stderr_next: u64,
    stdout_lost: u64,
    stderr_lost: u64,
    more: bool,
    #[serde(flatten)]
    state: ToldState,
}

/// State of a process, as sent to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToldState {
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
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

/// Session of the caller's that has the process.
async fn owner(this: &Follower, id: JobId) -> Result<SessionId, ToolError> {
    let runner = this.seat.core.ports.need::<dyn CommandRunner>()?;
    // The output of this look is dropped: clients get what calls read.
    let window =
        ProcessWindow { stdout_from: 0, stderr_from: 0, max_bytes: 16, wait: Duration::ZERO };
    for session in candidates(this).await {
        let cx = CallCx::internal(
            session,
            LOOK_TIME,
            this.seat.end.child_token(),
            tracing::Span::none(),
        );
        if cx.guard(runner.output(&cx, id, window)).await.is_ok() {
            return Ok(session);
        }
    }
    let what = format!("no session of yours has a process {id}");
    Err(ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, what)
        .next("process_list shows a session's processes"))
}

/// Sends output and state of a process until it has ended.
///
/// # Errors
/// `hub_channel_refused` for a process that is not of the caller's sessions, and for a caller that has none;
/// those of the calls.
pub(super) async fn process(this: &Follower, id: JobId) -> Result<(), ToolError> {
    if !this.caller.may_change() {
        let why = "a read-only credential reads no output of processes";
        return Err(ToolError::new(Layer::Door, codes::HUB_CHANNEL_REFUSED, why)
            .next("show a credential of the scope session or operator"));
    }
    let at = |stream: &str| match &this.frame.from {
        None => Ok(0),
        Some(FollowFrom::Output(from)) => Ok(from.get(stream).copied().unwrap_or(0)),
        Some(FollowFrom::Event(_)) => {
            Err(ToolError::invalid("`from` is not `{\"stdout\": n, \"stderr\": n}`"))
        }
    };
    let mut from = [at("stdout")?, at("stderr")?];
    let core = &this.seat.core;
    let origin = CallOrigin {
        session: owner(this, id).await?,
        door: Door::HttpApi,
        view: Arc::new(core.usual_view()),
        caller: Some(this.caller.user),
    };
    let read = async |[stdout_from, stderr_from]: [u64; 2], wait_secs: u64| {
        let asked = json!({
            "id": id, "stdout_from": stdout_from, "stderr_from": stderr_from, "wait_secs": wait_secs,
        });
        part_of::<OutputPart>(READS, origin.call_in_turn(core, READS, asked).await?)
    };
    let mut part = read(from, 0).await?;
    let _seat = this.seat.seat(&this.name);
    let [stdout_from, stderr_from] = from;
    if !this.acknowledge(json!({ "stdout": stdout_from, "stderr": stderr_from })).await {
        return Ok(());
    }
    let pause = Duration::from_millis(core.config.hub.poll_ms);
    let mut told_state = None;
    loop {
        if !tell(this, id, from, &part).await {
            return Ok(());
        }
        from = [part.stdout_next, part.stderr_next];
        let state = &part.state;
        if told_state.as_ref() != Some(state) && (state.status == "running" || !part.more) {
            let frame = ToldFrame::of("process_status", &this.name, json!(state));
            if !this.tell(frame.with("processId", json!(id))).await {
                return Ok(());
            }
            told_state = Some(state.clone());
        }
        if !part.more {
            if matches!(&*state.status, "exited" | "killed" | "interrupted") {
                this.tell(ToldFrame::of("end", &this.name, Value::Null)).await;
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
        part = read(from, WAIT_SECS).await?;
    }
}

/// Sends the output of each stream, and how much of it was lost; false when the client has gone.
async fn tell(this: &Follower, id: JobId, from: [u64; 2], part: &OutputPart) -> bool {
    let stdout = part.output.strip_suffix(&*part.stderr).unwrap_or(&part.output);
    for (stream, text, from, lost, next) in [
        ("stdout", stdout, from[0], part.stdout_lost, part.stdout_next),
        ("stderr", &*part.stderr, from[1], part.stderr_lost, part.stderr_next),
    ] {
        let named = |kind, data| {
            let frame = ToldFrame::of(kind, &this.name, data);
            frame.with("processId", json!(id)).with("stream", json!(stream))
        };
        let missed = json!({ "first": from, "last": (from + lost).saturating_sub(1) });
        if lost > 0 && !this.tell(named("missed", missed)).await {
            return false;
        }
        let said = named("process_output", json!(text)).with("cursor", json!(next));
        if !text.is_empty() && !this.tell(said).await {
            return false;
        }
    }
    true
}
