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

use std::{io, sync::Arc, time::Duration};

use axum::{Router, middleware};
use hivekeep_kernel::{Door, SharedPool, ports::ToolSearch};
use hivekeep_runtime::log::LogError;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use super::http::tls::TlsFileError;
use super::{
    DaemonServices,
    http::{
        body::BodyGate,
        hosts::AllowedHosts,
        lasting::LastingSessions,
        server::{self, ServerBounds},
        tls,
    },
    rate::RateBuckets,
};
use held::HeldSessions;
use idempotency::IdempotencyKeys;
use state::Api;

/// The reason why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `http_api.bind`")]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no TLS.
    #[error("http_api: {0}")]
    Tls(#[from] TlsFileError),
    /// The keys of requests in the journal cannot be read.
    #[error(transparent)]
    Keys(#[from] LogError),
}

/// The open door.
pub struct ApiDoor {
    /// The URL of the API, as the daemon itself would write it.
    pub url: String,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: ServerBounds,
    end: CancellationToken,
}

/// Opens the door; [`ApiDoor::serve`] lets clients in.
///
/// # Errors
/// When the address is taken, or a file or the journal unusable.
pub async fn open(core: Arc<DaemonServices>, end: CancellationToken) -> Result<ApiDoor, Error> {
    let options = core.config.http_api.clone();
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
        _ => None,
    };
    let bind = |source| Error::Bind { address: options.bind.clone(), source };
    let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (keys, sessions) = (IdempotencyKeys::open(&core.journal).await?, core.sessions.clone());
    let api = Arc::new(Api {
        hosts: AllowedHosts::new(&options.allowed_hosts, &options.allowed_origins),
        bodies: BodyGate {
            pace: RateBuckets::new(&core.config.daemon),
            incoming: core.incoming.clone(),
            max_bytes: options.max_body_mb * 1024 * 1024,
            patience: Duration::from_secs(options.body_timeout_secs),
        },
        requests: SharedPool::new("http_api.max_requests", options.max_requests),
        streams: SharedPool::new("http_api.max_streams", options.max_streams),
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
    let bounds = ServerBounds {
        connections: options.max_connections,
        header_bytes: options.max_header_kb * 1024,
        header_timeout: Duration::from_secs(options.header_timeout_secs),
        write_timeout: Duration::from_secs(options.write_timeout_secs),
    };
    let url = format!("{scheme}://{address}/api");
    Ok(ApiDoor { url, listener, tls, router: router(api), bounds, end })
}

impl ApiDoor {
    /// Serves until the end token fires.
    pub async fn serve(self) {
        server::serve(self.listener, self.tls, self.router, self.bounds, self.end).await;
    }
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
