//! Adapter for E2B's SDKs: a sandbox is a workspace, and what is asked of one is a call of a tool.
//!
//! ```text
//! control plane: X-API-KEY ──────────▶ credential ─▶ its session ─▶ dispatcher
//! data plane:    X-Access-Token, or a signature ──▶ its session ─▶ dispatcher
//! ```
//!
//! One listener serves both. Requests of the data plane name their sandbox in `E2b-Sandbox-Id` or in their host,
//! `PORT-SANDBOX.DOMAIN`. What the SDKs may ask for and this door does not have is refused by its name; `docs/e2b.md`
//! lists it.

mod access;
mod admit;
mod call;
mod control;
mod error;
mod files;
mod filesystem;
mod frames;
mod interpreter;
mod ports;
mod process;
mod routes;
mod rpc;
mod state;
mod target;
mod tokens;

use std::{io, sync::Arc, time::Duration};

use chrono::Utc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use hivekeep_kernel::{Door, SharedPool};

use super::{
    DaemonServices,
    http::{
        body::BodyGate,
        hosts::AllowedHosts,
        lasting::LastingSessions,
        server::{self, ServerBounds},
        tls,
        token::{BearerToken, TokenError},
    },
    http_api::TlsFileError,
    proxy::Tunnels,
    rate::RateBuckets,
};
use filesystem::{Homes, Watchers};
use state::{E2b, Owner};
use tokens::AccessTokens;

/// The largest head of a request.
const HEADER_BYTES: usize = 64 * 1024;
/// Attempts, a second apart, to remove what an ended daemon has left.
const TIDY_ATTEMPTS: u32 = 120;

/// The reason why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `doors.e2b.bind`")]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no TLS.
    #[error("doors.e2b: {0}")]
    Tls(#[from] TlsFileError),
    /// The secret of the access tokens cannot be used.
    #[error(transparent)]
    Secret(#[from] TokenError),
}

/// The open door.
pub struct E2bDoor {
    /// The URL that clients name as `E2B_API_URL` and `E2B_SANDBOX_URL`.
    pub url: String,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    e2b: Arc<E2b>,
    /// Who had sandboxes before.
    owners: Vec<Owner>,
    bounds: ServerBounds,
    end: CancellationToken,
}

/// Opens the door; [`E2bDoor::serve`] lets clients in.
///
/// # Errors
/// When the address is taken, or a file unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    inside: TaskTracker,
    end: CancellationToken,
) -> Result<E2bDoor, Error> {
    let options = core.config.doors.e2b.clone();
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
        _ => None,
    };
    let secret = BearerToken::load_or_create(&core.folders.e2b_secret())?;
    let bind = |source| Error::Bind { address: options.bind.clone(), source };
    let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let bounds = ServerBounds {
        connections: options.max_connections,
        header_bytes: HEADER_BYTES,
        header_timeout: Duration::from_secs(options.header_timeout_secs),
        write_timeout: Duration::from_secs(options.write_timeout_secs),
    };
    let domain = options.domain.clone().unwrap_or_else(|| format!("localhost:{}", address.port()));
    let e2b = Arc::new(E2b {
        hosts: AllowedHosts::new(&options.allowed_hosts, &[]),
        bodies: BodyGate {
            pace: RateBuckets::new(&core.config.daemon),
            incoming: core.incoming.clone(),
            max_bytes: options.max_body_mb * 1024 * 1024,
            patience: Duration::from_secs(options.body_timeout_secs),
        },
        requests: SharedPool::new("doors.e2b.max_requests", options.max_requests),
        // The sessions are those of the HTTP API: a credential's sandboxes are its workspaces there, too.
        lasting: LastingSessions::new(core.sessions.clone(), Door::HttpApi, "http-api"),
        tokens: AccessTokens::new(&secret),
        tunnels: Tunnels::new(
            ("doors.e2b.max_requests", options.max_requests),
            inside,
            end.clone(),
        ),
        homes: Homes::default(),
        watchers: Watchers::default(),
        forking: Arc::default(),
        domain,
        options,
        core,
    });
    let owners = e2b.hold_sessions().await;
    let url = format!("{scheme}://{address}");
    Ok(E2bDoor { url, listener, tls, e2b, owners, bounds, end })
}

impl E2bDoor {
    /// Serves until the end token fires.
    pub async fn serve(self) {
        let (e2b, begun) = (self.e2b.clone(), Utc::now());
        let tidying = self.end.clone().run_until_cancelled_owned(async move {
            for owner in self.owners {
                // Sandboxes are busy while they are taken up again.
                for attempt in 1..=TIDY_ATTEMPTS {
                    let Err(error) = e2b.forget_forks(&owner, begun).await else { break };
                    if attempt == TIDY_ATTEMPTS {
                        tracing::warn!(why = error.message, "snapshots of forks may stay");
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        });
        let router = routes::router(self.e2b);
        let served = server::serve(self.listener, self.tls, router, self.bounds, self.end);
        tokio::join!(tidying, served);
    }
}
