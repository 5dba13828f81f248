//! Frames of the Agent Client Protocol: JSON-RPC, a line each.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    Error, JsonRpcMessage, Notification, Request, RequestId, Response,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Longest frame that is taken.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;

/// A frame, in either direction.
#[derive(Debug, Clone, PartialEq)]
pub enum AcpFrame {
    /// Wants an answer.
    Request(Request<Value>),
    /// Wants none.
    Notification(Notification<Value>),
    /// Answer to a request.
    Response(Response<Value>),
}

/// A frame before it is known which one it is.
#[derive(Deserialize)]
struct RawFrame {
    jsonrpc: String,
    #[serde(default, deserialize_with = "present")]
    id: Option<RequestId>,
    method: Option<Arc<str>>,
    params: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Error>,
}

/// A key that is there, also with null.
fn present<'d, D: serde::Deserializer<'d>, T: Deserialize<'d>>(
    value: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl AcpFrame {
    /// Request with a method's own parameters.
    pub fn request(id: i64, method: &str, params: impl Serialize) -> Self {
        let (id, method, params) = (RequestId::Number(id), method.into(), value(params));
        Self::Request(Request { id, method, params: Some(params) })
    }

    /// Notification with a method's own parameters.
    pub fn notification(method: &str, params: impl Serialize) -> Self {
        Self::Notification(Notification { method: method.into(), params: Some(value(params)) })
    }

    /// Answer to a request.
    pub fn answer(id: RequestId, answer: Result<impl Serialize, Error>) -> Self {
        Self::Response(Response::new(id, answer.map(value)))
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The answer that a line gets which is no frame.
    pub fn read(line: &[u8]) -> Result<Self, Box<Self>> {
        let refused = |id: Option<RequestId>, error: Error| {
            Box::new(Self::Response(Response::new(id.unwrap_or(RequestId::Null), Err(error))))
        };
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| refused(None, Error::parse_error().data(error.to_string())))?;
        let id = value.get("id").and_then(|id| RequestId::deserialize(id).ok());
        let invalid = |why: &str| refused(id.clone(), Error::invalid_request().data(why));
        let raw = RawFrame::deserialize(value).map_err(|error| invalid(&error.to_string()))?;
        match raw {
            RawFrame { jsonrpc, .. } if jsonrpc != "2.0" => Err(invalid("`jsonrpc` is not 2.0")),
            RawFrame { id: Some(id), method: Some(method), params, .. } => {
                Ok(Self::Request(Request { id, method, params }))
            }
            RawFrame { id: None, method: Some(method), params, .. } => {
                Ok(Self::Notification(Notification { method, params }))
            }
            RawFrame { id: Some(id), result: Some(result), error: None, .. } => {
                Ok(Self::Response(Response::Result { id, result }))
            }
            RawFrame { id: Some(id), result: None, error: Some(error), .. } => {
                Ok(Self::Response(Response::Error { id, error }))
            }
            _ => Err(invalid("it is neither a request nor an answer")),
        }
    }

    /// Line of the frame, with its end.
    pub fn line(&self) -> Vec<u8> {
        let line = match self {
            Self::Request(request) => serde_json::to_vec(&JsonRpcMessage::wrap(request)),
            Self::Notification(it) => serde_json::to_vec(&JsonRpcMessage::wrap(it)),
            Self::Response(response) => serde_json::to_vec(&JsonRpcMessage::wrap(response)),
        };
        let mut line = line.expect("keys are texts, and numbers finite");
        line.push(b'\n');
        line
    }
}

/// Parameters of a method.
///
/// # Errors
/// The answer to a request whose parameters are others.
pub fn params<T: DeserializeOwned>(params: Option<Value>) -> Result<T, Error> {
    let params = params.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Ok(serde_json::from_value(params)?)
}

fn value(data: impl Serialize) -> Value {
    serde_json::to_value(data).expect("types of the protocol are JSON")
}
