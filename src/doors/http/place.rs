//! Place of one request, held for as long as its answer goes on.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http_body::{Frame, SizeHint};

/// Gives the place back when the body was sent or its client has gone: an event stream is an answer
/// whose head is there at once and whose body may last for days.
pub(in crate::doors) fn hold<P: Send + Unpin + 'static>(place: P, answer: Response) -> Response {
    answer.map(|body| Body::new(Placed { body, _place: place }))
}

struct Placed<P> {
    body: Body,
    _place: P,
}

impl<P: Unpin> http_body::Body for Placed<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
