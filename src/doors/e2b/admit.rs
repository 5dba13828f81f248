//! Admission of requests: whom the door serves, how many at a time, and how large. Stands before every route.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    error::{E2bError, Kind},
    routes::TAKES_STREAMS,
    state::E2b,
    target::ENVD_PORT,
};
use crate::doors::http::place;

/// Lets a request in or says why not.
pub(super) async fn admit(State(e2b): State<Arc<E2b>>, request: Request, next: Next) -> Response {
    let mut answer = match pass(&e2b, request, next).await {
        Ok(answer) => answer,
        Err(refused) => refused.into_response(),
    };
    let headers = answer.headers_mut();
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

async fn pass(e2b: &E2b, request: Request, next: Next) -> Result<Response, E2bError> {
    let (parts, body) = request.into_parts();
    let foreign = |why: &str| E2bError::new(Kind::PermissionDenied, why);
    if e2b.named_by_host(&parts).is_none() {
        e2b.hosts.check(&parts.uri, &parts.headers).map_err(|it| foreign(it.why()))?;
    }
    let full = "too many requests at once; `doors.e2b.max_requests` bounds them";
    let room = e2b.requests.clone().try_acquire_owned();
    let room = room.map_err(|_| E2bError::new(Kind::Unavailable, full))?;
    let for_port = e2b.sandbox_named(&parts).ok().flatten().filter(|it| it.port != ENVD_PORT);
    let streamed = for_port.is_some() || TAKES_STREAMS.contains(&parts.uri.path());
    let mut request = Request::from_parts(parts, body);
    if !streamed {
        request = e2b.bodies.weigh(request).await.map_err(|refused| {
            let kind = match refused.status {
                StatusCode::SERVICE_UNAVAILABLE => Kind::Unavailable,
                StatusCode::PAYLOAD_TOO_LARGE => Kind::ResourceExhausted,
                _ => Kind::InvalidArgument,
            };
            E2bError::new(kind, refused.why)
        })?;
    }
    Ok(place::hold(room, next.run(request).await))
}

/// The answer of a path without a route.
pub(super) async fn nothing_here(method: axum::http::Method, uri: Uri) -> E2bError {
    let shown: String = uri.path().chars().take(80).collect();
    E2bError::unsupported(&format!("{method} {shown}"))
}
