//! Bodies of requests: taken in within a time and a size, and paid for before they are parsed. A client that stops in
//! the middle keeps no place.
//!
//! What a handler leaves unread, as when it refuses, would be taken for the next request while it is still on its way.
//! A short body is read and dropped, behind a long one the connection is closed, and the answer says so.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::Response,
};
use futures::StreamExt as _;
use hivekeep_kernel::User;
use http_body::{Body as _, Frame, SizeHint};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep},
};

use crate::{
    DaemonServices,
    incoming::{LARGE_BYTES, MessageCost, MessageRoom, RateBuckets, ReservedRoom, SHORT_BYTES},
};

/// The bounds of bodies at one door, and what they are paid from.
pub struct BodyGate {
    /// All clients of the door together.
    pub pace: RateBuckets,
    /// Room that all doors share.
    pub incoming: MessageRoom,
    /// The longest body.
    pub max_bytes: usize,
    /// Time that a body may take, and that it may wait for room before.
    pub patience: Duration,
}

/// A body that is not taken.
#[derive(Debug)]
pub struct BodyRefusal {
    /// Status of the answer.
    pub status: StatusCode,
    /// Reason, as the client is told.
    pub why: String,
}

fn refused(status: StatusCode, why: impl Into<String>) -> BodyRefusal {
    BodyRefusal { status, why: why.into() }
}

impl BodyGate {
    /// Bounds of a door whose longest body is configured.
    pub fn new(core: &DaemonServices, max_body_mb: usize) -> Self {
        Self {
            pace: RateBuckets::new(&core.config.daemon),
            incoming: core.incoming.clone(),
            max_bytes: max_body_mb * 1024 * 1024,
            patience: Duration::from_secs(core.config.http.body_timeout_secs),
        }
    }

    /// Takes a user's body in, and lets it wait for what it costs before anybody parses it.
    pub async fn weigh(&self, user: User, request: Request) -> Result<Request, BodyRefusal> {
        if request.method() != Method::POST && request.body().is_end_stream() {
            return Ok(request);
        }
        let (parts, body) = request.into_parts();
        if body.size_hint().lower() > self.max_bytes as u64 {
            return Err(self.too_large());
        }
        let mut reserved = match body.size_hint().upper() {
            Some(bytes) if bytes <= SHORT_BYTES as u64 => None,
            _ => Some(self.reserve(user).await?),
        };
        let body = self.whole(body).await?;
        let mut weight = match body.len() > LARGE_BYTES {
            true => {
                let body = body.clone();
                let weighing = tokio::task::spawn_blocking(move || MessageCost::of(&body));
                let failed = |_| refused(StatusCode::INTERNAL_SERVER_ERROR, "it was not weighed");
                weighing.await.map_err(failed)?
            }
            false => MessageCost::of(&body),
        };
        if weight.excessive() {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "too many values"));
        }
        if let Some(reserved) = &mut reserved {
            reserved.shrink(body.len());
        }
        self.pace.pass(&mut weight).await;
        let mut request = Request::from_parts(parts, Body::from(body));
        // The room is the handler's, not the answer's, which may wait for a client that does not read.
        request.extensions_mut().insert(reserved.map(Arc::new));
        Ok(request)
    }

    /// Waits for room for a user's long message.
    pub async fn reserve(&self, user: User) -> Result<ReservedRoom, BodyRefusal> {
        let reserved = tokio::time::timeout(self.patience, self.incoming.reserve(user)).await;
        let full = |_| refused(StatusCode::SERVICE_UNAVAILABLE, "too many long requests at once");
        reserved.map_err(full)
    }

    async fn whole(&self, body: Body) -> Result<Bytes, BodyRefusal> {
        let whole = axum::body::to_bytes(body, self.max_bytes);
        match tokio::time::timeout(self.patience, whole).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err(self.too_large()),
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        }
    }

    fn too_large(&self) -> BodyRefusal {
        let text = format!("a body of at most {} bytes is taken", self.max_bytes);
        refused(StatusCode::PAYLOAD_TOO_LARGE, text)
    }
}

/// Breaks a body off that has brought nothing for `patience` while its reader waited for it.
pub fn limit_pauses(body: Body, patience: Duration) -> Body {
    if http_body::Body::is_end_stream(&body) {
        return body;
    }
    let timer = Box::pin(tokio::time::sleep(patience));
    Body::new(IdleBody { body, patience, awaited: false, timer })
}

struct IdleBody {
    body: Body,
    patience: Duration,
    /// The timer runs: what the reader takes for a piece is no pause of the client's.
    awaited: bool,
    timer: Pin<Box<Sleep>>,
}

impl http_body::Body for IdleBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.awaited = false;
            return Poll::Ready(frame);
        }
        if !std::mem::replace(&mut self.awaited, true) {
            let late = Instant::now() + self.patience;
            self.timer.as_mut().reset(late);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "the body paused too long");
                Poll::Ready(Some(Err(axum::Error::new(late))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of an unread body that are read and dropped.
const UNREAD_BYTES: u64 = 64 * 1024;
/// Time for them.
const UNREAD_PATIENCE: Duration = Duration::from_millis(500);

/// The body of a request that is being handled.
pub struct PendingBody {
    /// Brings the body once its handler has dropped it unread; closed once it was read.
    left: oneshot::Receiver<Body>,
    /// The client sends nothing before it is told to go on, and reading would tell it so.
    waits: bool,
}

/// Watches a request's body; `None` for a request without one.
pub fn watch_unread(request: Request) -> (Request, Option<PendingBody>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let (leaves, left) = oneshot::channel();
    let waits = request.headers().contains_key(header::EXPECT);
    let watched = |body| Body::new(WatchedBody { body, leaves: Some(leaves) });
    (request.map(watched), Some(PendingBody { left, waits }))
}

impl PendingBody {
    /// Reads what is left of a short body, or has the answer say that the connection ends behind it.
    pub async fn settle(mut self, mut answer: Response) -> Response {
        let clear = match self.left.try_recv() {
            Err(oneshot::error::TryRecvError::Closed) => true,
            Ok(body) if !self.waits => {
                tokio::time::timeout(UNREAD_PATIENCE, drop_short(body)).await.unwrap_or(false)
            }
            Ok(_) | Err(oneshot::error::TryRecvError::Empty) => false,
        };
        if !clear && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// Reads a body to its end. False when it is too long, or breaks.
async fn drop_short(body: Body) -> bool {
    let mut left = UNREAD_BYTES;
    if body.size_hint().lower() > left {
        return false;
    }
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let Ok(piece) = piece else { return false };
        let Some(less) = left.checked_sub(piece.len() as u64) else { return false };
        left = less;
    }
    true
}

/// A body that goes to [`PendingBody`] when it is dropped before its end.
struct WatchedBody {
    body: Body,
    leaves: Option<oneshot::Sender<Body>>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.leaves = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if let Some(leaves) = self.leaves.take() {
            // The connection may have ended.
            let _gone = leaves.send(std::mem::take(&mut self.body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_goes_on_is_taken_and_one_that_stops_is_broken_off() {
        let patience = Duration::from_secs(10);
        let pieces = |pause: u64| {
            let piece = move |n: u64| async move {
                tokio::time::sleep(Duration::from_secs(n * pause)).await;
                Ok::<_, io::Error>(Bytes::from_static(b"x"))
            };
            Body::from_stream(futures::stream::iter([0, 1, 1]).then(piece))
        };
        let whole = axum::body::to_bytes(limit_pauses(pieces(9), patience), 10).await;
        assert_eq!(whole.expect("it goes on"), "xxx");
        axum::body::to_bytes(limit_pauses(pieces(11), patience), 10).await.expect_err("it stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_its_time_breaks_nothing_off() {
        let piece = |n: u64| async move {
            tokio::time::sleep(Duration::from_secs(n * 5)).await;
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        };
        let slow = Body::from_stream(futures::stream::iter([0, 1, 1]).then(piece));
        let mut pieces = limit_pauses(slow, Duration::from_secs(10)).into_data_stream();
        for _ in 0..3 {
            assert_eq!(pieces.next().await.expect("a piece").expect("in time"), "x");
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
        assert!(pieces.next().await.is_none());
    }
}
