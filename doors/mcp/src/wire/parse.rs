//! Parser of a line, into a message or the answer that it gets instead.

use hivekeep_door_server::{
    codes,
    incoming::{LARGE_BYTES, MAX_VALUES},
};
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::json_text;
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::async_rw::{JsonRpcMessageCodec, JsonRpcMessageCodecError},
};
use serde::Deserialize;
use serde_json::{Value, error::Category, json};
use tokio::task::JoinHandle;
use tokio_util::{bytes::BytesMut, codec::Decoder};

use crate::misfits;

/// Kind of a line.
pub(super) enum Parsed {
    Message(ClientJsonRpcMessage),
    Refused(ServerJsonRpcMessage),
    /// A line that gets no answer.
    Ignored,
}

/// Work on a line, done at once, or, on a long one, where no other task waits for the thread.
pub(super) enum Work<T> {
    Done(Option<T>),
    Apart(JoinHandle<T>),
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn on(line: Vec<u8>, work: impl FnOnce(Vec<u8>) -> T + Send + 'static) -> Self {
        match line.len() > LARGE_BYTES {
            true => Self::Apart(tokio::task::spawn_blocking(move || work(line))),
            false => Self::Done(Some(work(line))),
        }
    }

    /// The work's result, once; `None` when it panicked. Cancelling loses nothing.
    pub(super) async fn ready(&mut self) -> Option<T> {
        match self {
            Self::Done(done) => done.take(),
            Self::Apart(work) => work.await.ok(),
        }
    }
}

pub(super) fn parse(line: &[u8]) -> Parsed {
    if let Ok(message) = json_text::from_slice(line) {
        return fitting(message);
    }
    // rmcp decides which lines are ignored and which are errors.
    let mut whole = BytesMut::with_capacity(line.len() + 1);
    whole.extend_from_slice(line);
    whole.extend_from_slice(b"\n");
    match JsonRpcMessageCodec::default().decode(&mut whole) {
        Ok(Some(message)) => fitting(message),
        Err(JsonRpcMessageCodecError::Serde(_)) if line.trim_ascii().is_empty() => Parsed::Ignored,
        Err(JsonRpcMessageCodecError::Serde(error)) => unreadable(line, &error),
        Ok(None) | Err(_) => Parsed::Ignored,
    }
}

/// A message, unless it is a request whose parameters its method does not take.
fn fitting(message: ClientJsonRpcMessage) -> Parsed {
    if let JsonRpcMessage::Request(request) = &message
        && let ClientRequest::CustomRequest(custom) = &request.request
        && let Some(error) = misfits::error(&custom.method, custom.params.as_ref(), None)
    {
        return Parsed::Refused(ServerJsonRpcMessage::error(error, Some(request.id.clone())));
    }
    Parsed::Message(message)
}

/// The outer members of a message. However deep the rest nests, it is read.
#[derive(Deserialize)]
struct Head {
    id: Option<RequestId>,
}

/// A message of which no more is known than that it is a request, if it is one.
#[derive(Deserialize)]
struct Loose {
    method: String,
    params: Option<Value>,
}

/// Answer to a line that is no message, with the id of its request if that can be read.
fn unreadable(line: &[u8], error: &serde_json::Error) -> Parsed {
    let error = match error.classify() {
        Category::Data => {
            let loose = serde_json::from_slice::<Loose>(line).ok();
            let misfit = loose.and_then(|it| misfits::error(&it.method, it.params.as_ref(), None));
            misfit.unwrap_or_else(|| ErrorData::invalid_request("Invalid request", None))
        }
        _ => ErrorData::parse_error(format!("the message cannot be parsed: {error}"), None),
    };
    let id = serde_json::from_slice::<Head>(line).ok().and_then(|head| head.id);
    Parsed::Refused(ServerJsonRpcMessage::error(error, id))
}

/// The error that a body or a line gets which is no message.
pub(crate) fn refusal_of(message: &[u8]) -> Option<ServerJsonRpcMessage> {
    match parse(message) {
        Parsed::Refused(refusal) => Some(refusal),
        Parsed::Message(_) | Parsed::Ignored => None,
    }
}

/// Refuses a message with too many values, of which only the id is read.
pub(super) fn refuse_excessive(line: &[u8]) -> Parsed {
    match serde_json::from_slice::<Head>(line) {
        Ok(Head { id: Some(id) }) => Parsed::Refused(refusal(Some(id), &too_many_values())),
        Ok(Head { id: None }) => Parsed::Ignored,
        Err(error) => unreadable(line, &error),
    }
}

/// Error for a message above the limit, of which not even the id is known.
pub(super) fn too_long() -> ServerJsonRpcMessage {
    let why = "a message above `daemon.max_message_mb` was dropped";
    ServerJsonRpcMessage::error(ErrorData::invalid_request(why, None), None)
}

pub(super) fn refusal(id: Option<RequestId>, error: &ToolError) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(refused(error), id)
}

/// An error of the request as such, before any tool is known.
pub(crate) fn refused(error: &ToolError) -> ErrorData {
    ErrorData::invalid_request(error.to_text(), Some(json!({ "error": error })))
}

pub(crate) fn too_many(most: usize) -> ToolError {
    let message = format!("{most} requests of this client are not answered yet");
    ToolError::new(Layer::Door, codes::TOO_MANY_REQUESTS, message)
        .next("wait for answers or cancel some requests, then ask again")
        .retryable()
}

fn too_many_values() -> ToolError {
    let message = format!("the message has more than {MAX_VALUES} values");
    ToolError::new(Layer::Door, codes::TOO_MANY_VALUES, message)
        .next("split it, or send text instead")
}
