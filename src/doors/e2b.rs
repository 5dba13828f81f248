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
mod control;
mod error;
mod files;
mod filesystem;
mod frames;
mod ports;
mod process;
mod routes;
mod rpc;
mod target;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Door, SessionId, SharedPool, ToolError, User};
use hivekeep_ports::Tools as _;
use hivekeep_registry::ToolView;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    DaemonServices,
    http::{
        body::BodyGate,
        caller::{BearerToken, LastingSessions},
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        hosts::AllowedHosts,
        server::ServerBounds,
    },
    proxy::Tunnels,
    tool_calls::{CallOrigin, part_of},
};
use crate::{
    config::E2bOptions,
    credentials::{CredentialRow, CredentialScope},
};
use access::AccessTokens;
use error::E2bError;
use filesystem::{Homes, Watchers};

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

/// State of the handlers.
struct E2b {
    core: Arc<DaemonServices>,
    options: E2bOptions,
    hosts: AllowedHosts,
    bodies: BodyGate,
    /// Requests at a time, streams included. Requests without a credential, as for public ports, have no
    /// user.
    requests: SharedPool,
    /// A session for each credential.
    lasting: LastingSessions,
    tokens: AccessTokens,
    /// Domain that clients get.
    domain: String,
    /// Upgraded connections to ports.
    tunnels: Tunnels,
    homes: Homes,
    watchers: Watchers,
    /// A clone for each fork that is under way.
    forking: Arc<()>,
}

/// The credential that a request is made with, and its session.
#[derive(Debug, Clone)]
struct Owner {
    credential: hivekeep_kernel::CredentialId,
    session: SessionId,
    view: Arc<ToolView>,
}

impl E2b {
    /// The owner that a credential stands for, with its session open.
    ///
    /// # Errors
    /// Those of opening a session.
    async fn owner(&self, row: &CredentialRow) -> Result<Owner, ToolError> {
        let client = || format!("E2B SDK ({})", row.name);
        let session = self.lasting.of(row.user(), client).await?;
        let view = match row.scope {
            CredentialScope::Operator => ToolView::operator(),
            CredentialScope::Session | CredentialScope::ReadOnly => self.core.usual_view(),
        };
        Ok(Owner { credential: row.id, session, view: Arc::new(view) })
    }

    /// Holds the sessions of credentials that had some before the daemon was restarted: without a client they
    /// would end after a while, and their sandboxes would have no owner.
    async fn hold_sessions(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        let users: Vec<Option<User>> =
            self.core.sessions.list().await.iter().map(|row| row.user).collect();
        for row in self.core.credentials.list() {
            let works = row.scope != CredentialScope::ReadOnly;
            if !works || !users.contains(&Some(row.user())) {
                continue;
            }
            match self.owner(&row).await {
                Ok(owner) => owners.push(owner),
                Err(error) => {
                    tracing::warn!(%error, credential = row.name, "a session is not held");
                }
            }
        }
        owners
    }

    /// See [`CallOrigin::call`].
    ///
    /// # Errors
    /// Those of the dispatcher and of the tool.
    async fn call(&self, owner: &Owner, tool: &str, args: Value) -> Result<Value, ToolError> {
        owner.origin().call(&self.core, tool, args).await
    }

    /// Like [`Self::call`], but returns the wanted parts of the result.
    ///
    /// # Errors
    /// Those of the call.
    async fn ask<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<T, E2bError> {
        Ok(part_of(tool, self.call(owner, tool, args).await?)?)
    }

    /// See [`CallOrigin::call_in_turn`].
    ///
    /// # Errors
    /// Those of the call; `rate_limited` where its turn does not come.
    async fn call_in_turn(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        owner.origin().call_in_turn(&self.core, tool, args).await
    }

    /// Whether the policy lets an owner call a tool, and its credential is not revoked.
    fn may(&self, owner: &Owner, tool: &str) -> bool {
        let tool = self.core.catalogue().find(tool).map(|entry| entry.spec);
        let may = |spec| self.core.dispatcher.may_call(owner.session, &owner.view, spec);
        self.live(owner.credential).is_some() && tool.is_some_and(may)
    }
}

impl Owner {
    fn origin(&self) -> CallOrigin {
        let (session, view) = (self.session, self.view.clone());
        CallOrigin { session, door: Door::E2b, view, caller: None }
    }
}
