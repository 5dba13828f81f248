//! Procedures of Connect in JSON: unary calls, and answers that are streams.

use std::time::Duration;

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    error::E2bError,
    frames::{self, FrameReader},
};

/// Messages on their way to one client.
const AHEAD: usize = 4;
/// Interval of keepalives where a client names none.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// Outcome of a unary call.
pub(super) type Answer = Result<Json<Value>, RpcError>;

/// A refusal in the words of Connect.
pub(super) struct RpcError(pub(super) E2bError);

impl<E: Into<E2bError>> From<E> for RpcError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        self.0.into_rpc()
    }
}

/// The message of a unary call.
pub(super) struct MessageOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for MessageOf<T> {
    type Rejection = RpcError;
    async fn from_request(request: Request, state: &S) -> Result<Self, RpcError> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| E2bError::invalid(error.body_text()))?;
        let message = serde_json::from_slice(&body);
        Ok(Self(message.map_err(|error| E2bError::invalid(format!("the message: {error}")))?))
    }
}

/// The one message of a call that is answered by a stream.
pub(super) struct EnvelopeOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for EnvelopeOf<T> {
    type Rejection = RpcError;
    async fn from_request(request: Request, state: &S) -> Result<Self, RpcError> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| E2bError::invalid(error.body_text()))?;
        let mut reader = FrameReader::default();
        reader.push(&body);
        let message = reader.next()?;
        Ok(Self(message.ok_or_else(|| E2bError::invalid("the call has no message"))?))
    }
}

/// What a client says of the time of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    /// Its limit, if it has one.
    pub(super) limit: Option<Duration>,
    /// Longest silence of a stream.
    pub(super) keepalive: Duration,
}

impl CallTimes {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let number = |name: &str| -> Option<u64> { headers.get(name)?.to_str().ok()?.parse().ok() };
        let limit = number("connect-timeout-ms").filter(|ms| *ms > 0).map(Duration::from_millis);
        let keepalive = number("keepalive-ping-interval").filter(|secs| *secs > 0);
        Self { limit, keepalive: keepalive.map_or(KEEPALIVE, Duration::from_secs) }
    }
}

/// Writer of a stream. Fails when the client has gone.
pub(super) struct StreamWriter(mpsc::Sender<Bytes>);

/// The client has gone.
pub(super) struct ClientGone;

impl StreamWriter {
    pub(super) async fn message(&self, message: &Value) -> Result<(), ClientGone> {
        self.0.send(frames::message(message)).await.map_err(|_| ClientGone)
    }

    async fn end(self, error: Option<E2bError>) {
        let _gone = self.0.send(frames::end(error.as_ref())).await;
    }
}

/// Answers with a stream whose first message is there already, so that it leaves with the head. `write` goes on
/// from there, and is dropped when the client has gone.
pub(super) fn stream<W>(
    first: &Value,
    write: impl FnOnce(StreamWriter) -> W + Send + 'static,
) -> Response
where
    W: Future<Output = (StreamWriter, Result<(), E2bError>)> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    // There is room for it.
    let _sent = sender.try_send(frames::message(first));
    tokio::spawn(async move {
        let watched = sender.clone();
        tokio::select! {
            () = watched.closed() => {}
            (writer, outcome) = write(StreamWriter(sender)) => writer.end(outcome.err()).await,
        }
    });
    let pieces = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    of_stream(Body::from_stream(futures::StreamExt::map(pieces, Ok::<_, std::convert::Infallible>)))
}

/// A stream that has failed before its first message.
pub(super) fn failed(error: E2bError) -> Response {
    match error.kind {
        super::error::Kind::Gone => error.into_response(),
        _ => of_stream(Body::from(frames::end(Some(&error)))),
    }
}

/// The answer to a stream of a client's: one message, and the end.
pub(super) fn single(message: &Value) -> Response {
    of_stream(Body::from([frames::message(message), frames::end(None)].concat()))
}

fn of_stream(body: Body) -> Response {
    let kind = HeaderValue::from_static("application/connect+json");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}
