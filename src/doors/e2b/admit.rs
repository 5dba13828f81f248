//! Admission of requests: whom the door serves, how many of whose at a time, and how large.
//!
//! ```text
//! host ─▶ key, token or signature ─▶ place of its credential ─▶ body ─▶ route
//! ```

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hivekeep_kernel::{PoolPlace, ToolError, User};

use super::{
    error::{E2bError, Kind},
    state::E2b,
};
use crate::doors::http::{
    body::{self, BodyRefusal},
    server,
};

/// Path of the contents of files, which URLs are signed for.
pub(super) const FILES: &str = "/files";
/// Paths whose bodies are read as they come.
const TAKES_STREAMS: [&str; 2] = [FILES, "/process.Process/StreamInput"];

/// Serves allowed hosts; every answer leaves with the same headers.
pub(super) async fn admit(State(e2b): State<Arc<E2b>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let foreign = match e2b.named_by_host(&parts) {
        Some(_) => None,
        None => e2b.hosts.check(&parts.uri, &parts.headers).err(),
    };
    let mut answer = match foreign {
        None => next.run(Request::from_parts(parts, body)).await,
        Some(it) => E2bError::new(Kind::PermissionDenied, it.why()).into_response(),
    };
    let headers = answer.headers_mut();
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Serves whoever has a key.
pub(super) async fn by_key(
    State(e2b): State<Arc<E2b>>,
    request: Request,
    next: Next,
) -> Result<Response, E2bError> {
    let (mut parts, body) = request.into_parts();
    let owner = e2b.keyed(&parts.headers).await?;
    let credential = owner.credential;
    parts.extensions.insert(owner);
    e2b.serve(User::Credential(credential), (parts, body), next).await
}

/// Serves whoever has the token of a sandbox, or an URL of a file that was signed with it.
pub(super) async fn by_token(
    State(e2b): State<Arc<E2b>>,
    request: Request,
    next: Next,
) -> Result<Response, E2bError> {
    let (mut parts, body) = request.into_parts();
    let target = match parts.uri.path() == FILES {
        true => e2b.file_target(&parts).await?,
        false => e2b.target(&parts).await?,
    };
    let credential = target.owner.credential;
    parts.extensions.insert(target);
    e2b.serve(User::Credential(credential), (parts, body), next).await
}

impl E2b {
    /// A place for a request; it is held for as long as the answer goes on.
    ///
    /// # Errors
    /// With as many as there may be.
    pub(super) fn place(&self, of: User) -> Result<PoolPlace, E2bError> {
        Ok(self.requests.take(of).map_err(ToolError::from)?)
    }

    async fn serve(
        &self,
        user: User,
        (parts, body): (Parts, Body),
        next: Next,
    ) -> Result<Response, E2bError> {
        let place = self.place(user)?;
        let request = match TAKES_STREAMS.contains(&parts.uri.path()) {
            true => Request::from_parts(parts, body::limit_pauses(body, self.bodies.patience)),
            false => self.bodies.weigh(user, Request::from_parts(parts, body)).await?,
        };
        Ok(server::hold_place(place, next.run(request).await))
    }
}

impl From<BodyRefusal> for E2bError {
    fn from(refused: BodyRefusal) -> Self {
        let kind = match refused.status {
            StatusCode::SERVICE_UNAVAILABLE => Kind::Unavailable,
            StatusCode::PAYLOAD_TOO_LARGE => Kind::ResourceExhausted,
            _ => Kind::InvalidArgument,
        };
        Self::new(kind, refused.why)
    }
}

/// The answer of a path without a route.
pub(super) async fn nothing_here(method: axum::http::Method, uri: Uri) -> E2bError {
    let shown: String = uri.path().chars().take(80).collect();
    E2bError::unsupported(&format!("{method} {shown}"))
}
