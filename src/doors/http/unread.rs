//! Request bodies that their handler leaves unread, as when it refuses: what is still on its way would be taken for
//! the next request. A short one is read and dropped, behind a long one the connection is closed, and the answer says so.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use futures::StreamExt as _;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::oneshot;

/// Bytes of an unread body that are read and dropped.
const SHORT_BYTES: u64 = 64 * 1024;
/// Time for them.
const PATIENCE: Duration = Duration::from_millis(500);

/// The body of a request that is being handled.
pub(in crate::doors) struct PendingBody {
    /// Brings the body once its handler has dropped it unread; closed once it was read.
    left: oneshot::Receiver<Body>,
    /// The client sends nothing before it is told to go on, and reading would tell it so.
    waits: bool,
}

/// Watches a request's body; `None` for a request without one.
pub(in crate::doors) fn watch(request: Request) -> (Request, Option<PendingBody>) {
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
    pub(in crate::doors) async fn settle(mut self, mut answer: Response) -> Response {
        let clear = match self.left.try_recv() {
            Err(oneshot::error::TryRecvError::Closed) => true,
            Ok(body) if !self.waits => {
                tokio::time::timeout(PATIENCE, drop_short(body)).await.unwrap_or(false)
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
    let mut left = SHORT_BYTES;
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
