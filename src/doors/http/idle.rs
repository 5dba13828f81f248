//! Request body that may not pause for long: a client that stops in the middle keeps no place.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// Breaks a body off that has brought nothing for `patience` while its reader waited for it.
pub(in crate::doors) fn limit(body: Body, patience: Duration) -> Body {
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

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

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
        let whole = axum::body::to_bytes(limit(pieces(9), patience), 10).await;
        assert_eq!(whole.expect("it goes on"), "xxx");
        axum::body::to_bytes(limit(pieces(11), patience), 10).await.expect_err("it stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_its_time_breaks_nothing_off() {
        let piece = |n: u64| async move {
            tokio::time::sleep(Duration::from_secs(n * 5)).await;
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        };
        let slow = Body::from_stream(futures::stream::iter([0, 1, 1]).then(piece));
        let mut pieces = limit(slow, Duration::from_secs(10)).into_data_stream();
        for _ in 0..3 {
            assert_eq!(pieces.next().await.expect("a piece").expect("in time"), "x");
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
        assert!(pieces.next().await.is_none());
    }
}
