//! The HTTP API at `/api`: tools with the decisions about them, sessions, events.
//!
//! ```text
//! connection (bounds, TLS) ─▶ Host, Origin ─▶ concurrency ─▶ credential ─▶ body ─▶ scope ─▶ handler
//! ```
//! At the Unix socket a request without a credential is the operator's.
//!
//! The seven routes of tools are the published registry's, field for field; the others are additions,
//! tagged `hivekeep` in the OpenAPI document that is made from the handlers. The document and the page that shows it
//! work offline, and need no credential: they say nothing of this daemon but its version.
#![warn(missing_docs)]

mod approvals;
mod artifacts;
mod audit;
mod chats;
mod decision;
mod descriptor;
mod error;
mod events;
mod execution_files;
mod extract;
mod grants;
pub mod hub;
mod idempotency;
mod invoke;
mod openapi;
mod policy;
mod published;
mod runs;
mod sessions;
mod state;
mod status;
mod tools;
mod toolsets;
mod webhooks;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use hivekeep_door_server::{
    DaemonServices,
    http::{
        body::{BodyGate, BodyRefusal},
        caller::{self, HttpCaller, LastingSessions},
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        hosts::AllowedHosts,
        server::{self, ServerBounds},
    },
};
use hivekeep_kernel::{Door, SharedPool, User};
use hivekeep_ports::ToolSearch;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::OpenApi;

use error::ApiError;
use idempotency::IdempotencyKeys;
use state::{Api, HeldSessions};

/// Binds the configured address for the API's routes and those beside them.
///
/// # Errors
/// When the address is taken, or a file unusable.
pub fn open(
    core: &DaemonServices,
    router: Router,
    end: CancellationToken,
) -> Result<HttpDoor, DoorError> {
    let http = &core.config.http;
    let listener = DoorListener::bind("http.api", &http.api.listener)?;
    let url = format!("{}://{}/api", listener.scheme(HTTP), listener.address);
    execution_files::offer(core, &listener)?;
    Ok(HttpDoor { url, listener, router, bounds: ServerBounds::of(http), end })
}

/// Makes the routes; sessions and idempotency keys behind them are looked after until the end.
///
/// # Errors
/// When the journal is unusable.
pub async fn routes(
    core: Arc<DaemonServices>,
    end: CancellationToken,
) -> Result<Router, DoorError> {
    let (http, options) = (core.config.http.clone(), core.config.http.api.clone());
    let (keys, sessions) = (IdempotencyKeys::open(&core.journal).await?, core.sessions.clone());
    let api = Arc::new(Api {
        hosts: AllowedHosts::new(&http.allowed_hosts, &http.allowed_origins),
        bodies: BodyGate::new(&core, options.max_body_mb),
        webhook_bodies: webhooks::bodies(&core),
        requests: SharedPool::new("http.api.max_requests", options.max_requests),
        streams: SharedPool::new("http.api.max_streams", options.max_streams),
        lasting: LastingSessions::new(sessions.clone(), Door::HttpApi, "http-api"),
        held: HeldSessions::new(sessions, Duration::from_secs(options.session_idle_secs)),
        keys,
        audit_readers: Arc::new(Semaphore::new(audit::READERS)),
        search: core.ports.find::<dyn ToolSearch>(),
        end: end.clone(),
        core,
    });
    api.held.sweep_until(end.clone());
    api.keys.sweep_until(end);
    let (routes, document) = openapi::routes();
    Ok(routes
        .merge(pages(document))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn_with_state(api.clone(), admit))
        .with_state(api))
}

/// True for a route whose answer goes on for as long as its client stays.
fn is_stream(path: &str) -> bool {
    let of_one = ["/api/chats/", "/api/runs/"].iter().any(|of| path.starts_with(of));
    path.starts_with("/api/events") || of_one && path.ends_with("/events")
}

/// Lets a request in or says why not; every answer leaves with the same headers.
async fn admit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let answer = match pass(&api, request, next).await {
        Ok(answer) => answer,
        Err(refused) => refused.into_response(),
    };
    secured(answer)
}

async fn pass(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let foreign = |why: &'static str| ApiError::plain(StatusCode::FORBIDDEN, why);
    api.hosts.check_request(&request).map_err(|it| foreign(it.why()))?;
    let path = request.uri().path();
    if path.starts_with(webhooks::PATH) {
        return webhooks::admit(api, request, next).await;
    }
    let (public, stream) = (is_public(path), is_stream(path));
    let mut request = request;
    let mut user = User::Nobody;
    if !public {
        let given = caller::bearer_of(request.headers()).is_some();
        let known = HttpCaller::of(&request, &api.core.credentials);
        let caller = known.ok_or(ApiError::Unauthorized { given })?;
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
async fn nothing_here(uri: Uri) -> ApiError {
    let shown: String = uri.path().chars().take(80).collect();
    let why = format!("there is nothing at `{shown}`; `/api/openapi.json` lists the routes");
    ApiError::plain(StatusCode::NOT_FOUND, why)
}

/// The answer of a route to a method that it does not take.
async fn other_method() -> ApiError {
    let why = "this route does not take this method; the header `Allow` names those that it takes";
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, why)
}

const PAGE: &str = include_str!("pages/docs.html");
const SCRIPT: &str = include_str!("pages/docs.js");
const STYLE: &str = include_str!("pages/docs.css");

/// Content that the page may load: its own script and style, and answers of this door.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PUBLIC_PATHS: [&str; 6] = [
    "/api/health",
    "/api/docs",
    "/api/docs.js",
    "/api/docs.css",
    "/api/openapi.json",
    execution_files::PATH,
];

/// True for a path that needs no credential, or has its own way to let somebody in.
fn is_public(path: &str) -> bool {
    PUBLIC_PATHS.contains(&path)
}

fn pages(document: OpenApi) -> Router<Arc<Api>> {
    let document = Bytes::from(serde_json::to_vec(&document).expect("it is plain data"));
    Router::new()
        .route("/api/openapi.json", get(move || async { typed("application/json", document) }))
        .route("/api/docs", get(|| async { typed("text/html; charset=utf-8", PAGE) }))
        .route("/api/docs.js", get(|| async { typed("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/api/docs.css", get(|| async { typed("text/css; charset=utf-8", STYLE) }))
}

fn typed(kind: &'static str, body: impl IntoResponse) -> Response {
    let mut answer = body.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    answer
}
