//! The HTTP API at `/api`: tools with the decisions about them, sessions, events.
//!
//! ```text
//! connection (bounds, TLS) ─▶ Host, Origin ─▶ concurrency ─▶ credential ─▶ body ─▶ scope ─▶ handler
//! ```
//!
//! The seven routes of tools are the published registry's, field for field; the others are additions,
//! tagged `hivekeep` in the OpenAPI document that is made from the handlers.

mod actors;
mod admit;
mod approvals;
mod artifacts;
mod audit;
mod decision;
mod descriptor;
mod digest;
mod error;
mod events;
mod extract;
mod grants;
mod health;
mod held;
mod idempotency;
mod invoke;
mod openapi;
mod pages;
mod policy;
mod published;
mod scope;
mod sessions;
mod state;
mod tools;
mod toolsets;

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware};
use hivekeep_kernel::{Door, SharedPool};
use hivekeep_ports::ToolSearch;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    DaemonServices,
    http::{
        body::BodyGate,
        caller::LastingSessions,
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        hosts::AllowedHosts,
        server::ServerBounds,
    },
};
use held::HeldSessions;
use idempotency::IdempotencyKeys;
use state::Api;

/// Opens the door.
///
/// # Errors
/// When the address is taken, or a file or the journal unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    end: CancellationToken,
) -> Result<HttpDoor, DoorError> {
    let (http, options) = (core.config.http.clone(), core.config.http.api.clone());
    let listener = DoorListener::bind("http.api", &options.listener)?;
    let (keys, sessions) = (IdempotencyKeys::open(&core.journal).await?, core.sessions.clone());
    let api = Arc::new(Api {
        hosts: AllowedHosts::new(&http.allowed_hosts, &http.allowed_origins),
        bodies: BodyGate::new(&core, options.max_body_mb),
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
    api.keys.sweep_until(end.clone());
    let url = format!("{}://{}/api", listener.scheme(HTTP), listener.address);
    let bounds = ServerBounds::of(&http);
    Ok(HttpDoor { url, listener, router: router(api), bounds, end })
}

fn router(api: Arc<Api>) -> Router {
    let (routes, document) = openapi::routes();
    routes
        .merge(pages::routes(document))
        .fallback(admit::nothing_here)
        .method_not_allowed_fallback(admit::other_method)
        .layer(middleware::from_fn_with_state(api.clone(), admit::admit))
        .with_state(api)
}
