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
#![warn(missing_docs)]

mod access;
mod control;
mod error;
mod files;
mod filesystem;
mod frames;
mod ports;
mod process;
mod routes;
mod rpc;
mod state;
mod target;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_door_server::{
    DaemonServices,
    http::{
        body::BodyGate,
        caller::{BearerToken, LastingSessions},
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        hosts::AllowedHosts,
        server::ServerBounds,
    },
    proxy::Tunnels,
};
use hivekeep_kernel::{Door, SharedPool};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use access::AccessTokens;
use filesystem::{Homes, Watchers};
use state::{E2b, Owner};

/// Attempts, a second apart, to remove what an ended daemon has left.
const TIDY_ATTEMPTS: u32 = 120;

/// Opens the door.
///
/// # Errors
/// When the address is taken, or a file unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    inside: TaskTracker,
    end: CancellationToken,
) -> Result<HttpDoor, DoorError> {
    let (http, options) = (core.config.http.clone(), core.config.http.e2b.clone());
    let secret = BearerToken::load_or_create(&core.folders.e2b_secret())?;
    let listener = DoorListener::bind("http.e2b", &options.listener)?;
    let address = listener.address;
    let domain = options.domain.clone().unwrap_or_else(|| format!("localhost:{}", address.port()));
    let most = ("http.e2b.max_requests", options.max_requests);
    let e2b = Arc::new(E2b {
        hosts: AllowedHosts::new(&http.allowed_hosts, &[]),
        bodies: BodyGate::new(&core, options.max_body_mb),
        requests: SharedPool::new(most.0, most.1),
        // The sessions are those of the HTTP API: a credential's sandboxes are its workspaces there, too.
        lasting: LastingSessions::new(core.sessions.clone(), Door::HttpApi, "http-api"),
        tokens: AccessTokens::new(&secret),
        tunnels: Tunnels::new(most, inside.clone(), end.clone()),
        homes: Homes::default(),
        watchers: Watchers::default(),
        forking: Arc::default(),
        domain,
        options,
        core,
    });
    let owners = e2b.hold_sessions().await;
    inside.spawn(end.clone().run_until_cancelled_owned(tidy(e2b.clone(), owners)));
    let url = format!("{}://{address}", listener.scheme(HTTP));
    let (router, bounds) = (routes::router(e2b), ServerBounds::of(&http));
    Ok(HttpDoor { url, listener, router, bounds, end })
}

/// Removes what forks of those who had sandboxes before have left.
async fn tidy(e2b: Arc<E2b>, owners: Vec<Owner>) {
    let begun = Utc::now();
    for owner in owners {
        // Sandboxes are busy while they are taken up again.
        for attempt in 1..=TIDY_ATTEMPTS {
            let Err(error) = e2b.forget_forks(&owner, begun).await else { break };
            if attempt == TIDY_ATTEMPTS {
                tracing::warn!(why = error.message, "snapshots of forks may stay");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
