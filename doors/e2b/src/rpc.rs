//! Procedures of Connect in JSON: unary calls, and answers that are streams.

use std::time::Duration;

use axum::{
    Json,
    body::{Body, BodyDataStream, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use hivekeep_door_server::{
    http::body::BodyGate,
    incoming::{ReservedRoom, SHORT_BYTES},
};
use hivekeep_kernel::User;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

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
        let message = hivekeep_runtime::json_text::body(&body);
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
        // The gate of bodies has bounded it.
        let mut reader = FrameReader::new(usize::MAX);
        reader.push(&body);
        let message = reader.next()?;
        Ok(Self(message.ok_or_else(|| E2bError::invalid("the call has no message"))?))
    }
}

/// Messages of a user's stream, of which a long one takes room until the next is asked for.
pub(super) struct FrameStream<'g> {
    gate: &'g BodyGate,
    user: User,
    pieces: BodyDataStream,
    reader: FrameReader,
    /// Room for a long next message, and the time by which that has to be whole.
    long: Option<(ReservedRoom, Instant)>,
}

impl<'g> FrameStream<'g> {
    pub(super) fn new(gate: &'g BodyGate, user: User, body: Body) -> Self {
        let reader = FrameReader::new(gate.max_bytes);
        Self { gate, user, pieces: body.into_data_stream(), reader, long: None }
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// For one that is not valid or comes too slowly, and where there is no room for it.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, E2bError> {
        self.long = None;
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(Some(message));
            }
            if let (Some(length @ SHORT_BYTES..), None) = (self.reader.length()?, &self.long) {
                let mut room = self.gate.reserve(self.user).await?;
                room.shrink(length);
                self.reader.make_room(length);
                self.long = Some((room, Instant::now() + self.gate.patience));
            }
            let piece = match &self.long {
                None => self.pieces.next().await,
                Some((_, until)) => {
                    let late = |_| E2bError::invalid("the message took too long");
                    timeout_at(*until, self.pieces.next()).await.map_err(late)?
                }
            };
            match piece {
                Some(Ok(piece)) => self.reader.push(&piece),
                Some(Err(error)) => return Err(E2bError::invalid(error.to_string())),
                None => return Ok(None),
            }
        }
    }
}

/// Times that a client sets for a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    /// The call's limit, if it has one.
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
    of_stream(Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>)))
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

#[cfg(test)]
mod tests {
    use hivekeep_config::Config;
    use hivekeep_door_server::incoming::{MessageRoom, RateBuckets};
    use serde_json::json;

    use super::*;

    /// Every door takes a MiB at once.
    fn config() -> Config {
        let mut config = Config::default();
        config.daemon.max_message_mb = 1;
        config.http.mcp.max_body_mb = 1;
        config.http.api.max_body_mb = 1;
        config.http.e2b.max_body_mb = 1;
        config
    }

    fn gate(incoming: &MessageRoom, patience_secs: u64) -> BodyGate {
        BodyGate {
            pace: RateBuckets::new(&config().daemon),
            incoming: incoming.clone(),
            max_bytes: 1 << 20,
            patience: Duration::from_secs(patience_secs),
        }
    }

    /// A body of these bytes, and nothing behind them.
    fn stalled(bytes: Bytes) -> Body {
        let begun = futures::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
        Body::from_stream(begun.chain(futures::stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn half_messages_take_room_that_is_bounded_and_for_a_time_that_is() {
        let room = MessageRoom::new(&config());
        let (gate, hasty) = (gate(&room, 60), gate(&room, 30));
        // The head of the longest message there is, and the beginning of it.
        let begun =
            Bytes::from([&[0][..], &(1_u32 << 20).to_be_bytes(), &[b' '; 100_000]].concat());
        let read = |gate, user| {
            let body = stalled(begun.clone());
            let mut half = FrameStream::new(gate, User::Uid(user), body);
            async move { half.next::<Value>().await.expect_err("half").message }
        };
        let half = futures::future::join_all((0..8).map(|user| read(&gate, user)));
        let short = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let whole = stalled(frames::message(&json!({ "a": 1 })));
            FrameStream::new(&gate, User::Uid(0), whole).next::<Value>().await
        };
        let (half, one_more, short) = tokio::join!(half, read(&hasty, 8), short);
        assert_eq!(short.expect("no room is needed"), Some(json!({ "a": 1 })));
        assert_eq!(one_more, "too many long requests at once");
        assert!(half.iter().all(|why| why == "the message took too long"), "{half:?}");
        assert!(gate.reserve(User::Uid(0)).await.is_ok(), "all of it is free again");
    }
}
