//! Admission of request bodies: taken in within a time and a size, and paid for before they are parsed.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{Method, StatusCode},
};
use hivekeep_kernel::User;
use http_body::Body as _;

use crate::doors::{
    DaemonServices,
    incoming::{MessageRoom, ReservedRoom, SHORT_BYTES},
    rate::{LARGE_BYTES, MessageCost, RateBuckets},
};

/// The bounds of bodies at one door, and what they are paid from.
pub(in crate::doors) struct BodyGate {
    /// All clients of the door together.
    pub(in crate::doors) pace: RateBuckets,
    pub(in crate::doors) incoming: MessageRoom,
    pub(in crate::doors) max_bytes: usize,
    /// Time that a body may take, and that it may wait for room before.
    pub(in crate::doors) patience: Duration,
}

/// A body that is not taken.
#[derive(Debug)]
pub(in crate::doors) struct BodyRefusal {
    pub(in crate::doors) status: StatusCode,
    pub(in crate::doors) why: String,
}

fn refused(status: StatusCode, why: impl Into<String>) -> BodyRefusal {
    BodyRefusal { status, why: why.into() }
}

impl BodyGate {
    pub(in crate::doors) fn new(core: &DaemonServices, max_body_mb: usize) -> Self {
        Self {
            pace: RateBuckets::new(&core.config.daemon),
            incoming: core.incoming.clone(),
            max_bytes: max_body_mb * 1024 * 1024,
            patience: Duration::from_secs(core.config.http.body_timeout_secs),
        }
    }

    /// Takes a user's body in, and lets it wait for what it costs before anybody parses it.
    pub(in crate::doors) async fn weigh(
        &self,
        user: User,
        request: Request,
    ) -> Result<Request, BodyRefusal> {
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
    pub(in crate::doors) async fn reserve(&self, user: User) -> Result<ReservedRoom, BodyRefusal> {
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
