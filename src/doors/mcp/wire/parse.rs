//! Parser of a line, into a message or the answer that it gets instead.

use hivekeep_kernel::{Layer, ToolError};
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::async_rw::{JsonRpcMessageCodec, JsonRpcMessageCodecError},
};
use serde::Deserialize;
use serde_json::{error::Category, json};
use tokio::task::JoinHandle;
use tokio_util::{bytes::BytesMut, codec::Decoder};

use crate::codes;
use crate::doors::rate::{LARGE_BYTES, MAX_VALUES};

/// Kind of a line.
pub(super) enum Parsed {
    Message(ClientJsonRpcMessage),
    Refused(ServerJsonRpcMessage),
    /// Nothing that has an answer.
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
    if let Ok(message) = serde_json::from_slice(line) {
        return Parsed::Message(message);
    }
    // What is to be overlooked, and what to be complained of, is rmcp's to know.
    let mut whole = BytesMut::with_capacity(line.len() + 1);
    whole.extend_from_slice(line);
    whole.extend_from_slice(b"\n");
    match JsonRpcMessageCodec::default().decode(&mut whole) {
        Ok(Some(message)) => Parsed::Message(message),
        Err(JsonRpcMessageCodecError::Serde(error)) if error.classify() == Category::Data => {
            let error = ErrorData::invalid_request("Invalid request", None);
            Parsed::Refused(ServerJsonRpcMessage::error(error, None))
        }
        Ok(None) | Err(_) => Parsed::Ignored,
    }
}

/// The head of a message.
#[derive(Deserialize)]
struct Head {
    id: Option<RequestId>,
}

/// Nothing but the id of such a message is looked at.
pub(super) fn refuse_excessive(line: &[u8]) -> Parsed {
    match serde_json::from_slice::<Head>(line) {
        Ok(Head { id: Some(id) }) => Parsed::Refused(refusal(Some(id), &too_many_values())),
        _ => Parsed::Ignored,
    }
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
