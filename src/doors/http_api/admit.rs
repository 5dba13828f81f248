//! Admission of requests: whom the door serves, and how many at a time. Stands before every route.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hivekeep_kernel::User;

use super::{error::ApiError, pages, state::Api};
use crate::doors::http::{
    body::BodyRefusal,
    caller::{self, HttpCaller},
    server,
};

/// Routes below which answers go on for as long as their clients stay.
const STREAMS: &str = "/api/events";

/// Lets a request in or says why not; every answer leaves with the same headers.
pub(super) async fn admit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let answer = match pass(&api, request, next).await {
        Ok(answer) => answer,
        Err(refused) => refused.into_response(),
    };
    secured(answer)
}

async fn pass(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let foreign = |why: &'static str| ApiError::plain(StatusCode::FORBIDDEN, why);
    api.hosts.check(request.uri(), request.headers()).map_err(|it| foreign(it.why()))?;
    let path = request.uri().path();
    let (public, stream) = (pages::is_public(path), path.starts_with(STREAMS));
    let mut request = request;
    let mut user = User::Nobody;
    if !public {
        let given = caller::bearer_of(request.headers());
        let known = given.and_then(|given| api.core.credentials.find(given));
        let unauthorized = ApiError::Unauthorized { given: given.is_some() };
        let caller = HttpCaller::from(known.ok_or(unauthorized)?);
        user = caller.user;
        request.extensions_mut().insert(caller);
    }
    // A stream takes a place of its own kind.
    let place = match stream {
        true => None,
        false => Some(api.requests.take(user)?),
    };
    let request = api.bodies.weigh(user, request).await.map_err(|refused| {
        let BodyRefusal { status, why } = refused;
        ApiError::plain(status, why)
    })?;
    let answer = next.run(request).await;
    Ok(match place {
        Some(place) => server::hold_place(place, answer),
        None => answer,
    })
}

/// Sets headers against caching, type guessing, framing and referrers.
fn secured(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    answer
}

/// The answer of a path without a route.
pub(super) async fn nothing_here(uri: Uri) -> ApiError {
    let shown: String = uri.path().chars().take(80).collect();
    let why = format!("there is nothing at `{shown}`; `/api/openapi.json` lists the routes");
    ApiError::plain(StatusCode::NOT_FOUND, why)
}

/// The answer of a route to a method that it does not take.
pub(super) async fn other_method() -> ApiError {
    let why = "this route does not take this method; the header `Allow` names those that it takes";
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, why)
}
