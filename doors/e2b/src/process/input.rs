//! Input of a process: in one message, or in a stream of them.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hivekeep_door_server::tool_calls::part_of;
use hivekeep_kernel::User;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{ProcessItem, Selector};
use crate::{
    error::{E2bError, Kind},
    rpc::{self, Answer, CallTimes, FrameStream, MessageOf, RpcError},
    state::E2b,
    target::Target,
};

/// Bytes of one write.
const WRITE_BYTES: usize = 48 * 1024;
/// Time that a process may leave its input unread.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pauses between two tries.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Time limit of a stream for which a client names none.
const LONGEST_STREAM: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Deserialize)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct InputMessage {
    process: Option<Selector>,
    input: Option<Input>,
}

#[derive(Debug, Deserialize)]
struct Taken {
    written_bytes: usize,
}

impl Input {
    fn bytes(self) -> Result<Vec<u8>, E2bError> {
        let text = self.stdin.or(self.pty).unwrap_or_default();
        STANDARD.decode(text).map_err(|_| E2bError::invalid("the input is not valid base64"))
    }
}

impl E2b {
    /// Writes all of an input, at the pace at which it is read.
    async fn write(
        &self,
        target: &Target,
        process: &ProcessItem,
        mut bytes: &[u8],
    ) -> Result<(), E2bError> {
        let (mut until, mut pause) = (Instant::now() + PATIENCE, PAUSE);
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(WRITE_BYTES)];
            let asked = json!({
                "id": process.id, "input": STANDARD.encode(piece), "encoding": "base64",
            });
            let taken = self.call_in_turn(&target.owner, "process_input", asked).await?;
            let Taken { written_bytes } = part_of("process_input", taken)?;
            bytes = bytes.get(written_bytes..).unwrap_or_default();
            if written_bytes > 0 {
                (until, pause) = (Instant::now() + PATIENCE, PAUSE);
            } else if Instant::now() >= until {
                let why = "the process does not read its input";
                return Err(E2bError::new(Kind::DeadlineExceeded, why));
            } else {
                sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
        Ok(())
    }
}

/// `SendInput`: bytes for the standard input or the terminal.
pub(in super::super) async fn send_input(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(message): MessageOf<InputMessage>,
) -> Answer {
    let process = e2b.selected(&target, message.process.as_ref()).await?;
    let input = message.input.ok_or_else(|| E2bError::invalid("`input` is missing"))?;
    e2b.write(&target, &process, &input.bytes()?).await?;
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct CloseMessage {
    process: Option<Selector>,
}

/// `CloseStdin`: the end of a process's input, behind all that was sent.
pub(in super::super) async fn close_stdin(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(message): MessageOf<CloseMessage>,
) -> Answer {
    let process = e2b.selected(&target, message.process.as_ref()).await?;
    let asked = json!({ "id": process.id, "input": "", "close": true });
    e2b.call_in_turn(&target.owner, "process_input", asked).await?;
    Ok(Json(json!({})))
}

/// Message of a stream of input.
#[derive(Debug, Deserialize)]
struct StreamMessage {
    start: Option<CloseMessage>,
    data: Option<StreamData>,
}

#[derive(Debug, Deserialize)]
struct StreamData {
    input: Option<Input>,
}

/// `StreamInput`: the messages of one request are written in their order.
pub(in super::super) async fn stream_input(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let limit = CallTimes::of(&headers).limit.unwrap_or(LONGEST_STREAM);
    let written = timeout(limit, write_all(&e2b, &target, body)).await;
    let late = || E2bError::new(Kind::DeadlineExceeded, "the call has reached its time limit");
    match written.unwrap_or_else(|_| Err(late())) {
        Ok(()) => rpc::single(&json!({})),
        Err(error) if error.kind == Kind::Gone => RpcError(error).into_response(),
        Err(error) => rpc::failed(error),
    }
}

async fn write_all(e2b: &E2b, target: &Target, body: Body) -> Result<(), E2bError> {
    let user = User::Credential(target.owner.credential);
    let (mut frames, mut process) = (FrameStream::new(&e2b.bodies, user, body), None);
    while let Some(message) = frames.next::<StreamMessage>().await? {
        if let Some(start) = message.start {
            process = Some(e2b.selected(target, start.process.as_ref()).await?);
        }
        let Some(input) = message.data.and_then(|data| data.input) else { continue };
        let to = process.as_ref();
        let to = to.ok_or_else(|| E2bError::invalid("the first message names no process"))?;
        e2b.write(target, to, &input.bytes()?).await?;
    }
    Ok(())
}
