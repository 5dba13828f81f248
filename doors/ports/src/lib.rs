//! URLs for ports of workspaces: a listener that routes by `Host` into workspaces over their links.
//!
//! ```text
//! connection (bounds, TLS) ─▶ Host ─▶ workspace ─▶ who may ─▶ credentials out ─▶ proxy ─▶ port
//! ```
//! `PORT-NAME.DOMAIN` is an origin of its own to a browser. A guest never sees a credential, a link or a
//! cookie of this door, and the answers of one origin set no cookie for another.
#![warn(missing_docs)]

mod access;
mod cookies;
mod host;
mod public;
mod request;

use std::{sync::Arc, time::Duration};

use axum::Router;
use hivekeep_config::{HttpOptions, PortUrlOptions};
use hivekeep_door_server::{
    DaemonServices,
    credentials::Credentials,
    http::{
        caller::BearerToken,
        door::{DoorError, DoorListener, HTTP, HttpDoor},
        server::ServerBounds,
    },
    proxy::Tunnels,
};
use hivekeep_kernel::{SessionId, SharedPool, User, WorkspaceId};
use hivekeep_ports::{PortUrls, WorkspaceFiles, WorkspacePorts};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use cookies::LinkKey;
use host::Urls;
use public::PublicPorts;

/// State of the door, shared by its requests.
struct PortDoor {
    options: PortUrlOptions,
    /// Time that a client may pause within the body of a request.
    body_patience: Duration,
    credentials: Credentials,
    /// User of a session.
    users: Box<dyn Fn(SessionId) -> Option<User> + Send + Sync>,
    workspaces: Arc<dyn WorkspaceFiles>,
    ports: Arc<dyn WorkspacePorts>,
    urls: Arc<Urls>,
    pools: PortPools,
}

/// Pools that the ports of all workspaces share: requests to those of one take half of a pool at most, since
/// clients of a public port are nobody who is known.
struct PortPools {
    requests: SharedPool<WorkspaceId>,
    tunnels: Tunnels,
}

impl PortPools {
    fn new(options: &PortUrlOptions, inside: TaskTracker, end: CancellationToken) -> Self {
        let upgrades = ("http.ports.max_upgrades", options.max_upgrades);
        Self {
            requests: SharedPool::new("http.ports.max_requests", options.max_requests),
            tunnels: Tunnels::new(upgrades, inside, end),
        }
    }
}

/// Opens the door and offers its URLs.
///
/// # Errors
/// When the address is taken, or a file or the journal unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    inside: TaskTracker,
    end: CancellationToken,
) -> Result<HttpDoor, DoorError> {
    let options = core.config.http.ports.clone();
    let workspaces = core.ports.find::<dyn WorkspaceFiles>().ok_or(DoorError::NoWorkspaces)?;
    let ports = core.ports.find::<dyn WorkspacePorts>().ok_or(DoorError::NoWorkspaces)?;
    let public = PublicPorts::open(&core.journal, workspaces.clone()).await?;
    public.forget_destroyed_until(&core.journal, end.clone());
    let key = LinkKey::new(&BearerToken::load_or_create(&core.folders.port_url_key())?);
    let listener = DoorListener::bind("http.ports", &options.listener)?;
    let urls = urls(&listener, &options, key, public);
    core.ports.offer::<dyn PortUrls>(urls.clone());
    let sessions = core.sessions.clone();
    let door = PortDoor {
        pools: PortPools::new(&options, inside, end.clone()),
        options,
        body_patience: Duration::from_secs(core.config.http.body_timeout_secs),
        credentials: core.credentials.clone(),
        users: Box::new(move |session| sessions.row(session).and_then(|row| row.user)),
        workspaces,
        ports,
        urls,
    };
    Ok(door.at(listener, &core.config.http, end))
}

fn urls(
    listener: &DoorListener,
    options: &PortUrlOptions,
    key: LinkKey,
    public: PublicPorts,
) -> Arc<Urls> {
    let port = options.public_port.unwrap_or(listener.address.port());
    Arc::new(Urls::new(listener.scheme(HTTP), &options.domain, port, key, public))
}

impl PortDoor {
    fn at(self, listener: DoorListener, http: &HttpOptions, end: CancellationToken) -> HttpDoor {
        let (url, bounds) = (self.urls.of("NAME", "PORT"), ServerBounds::of(http));
        let router = Router::new().fallback(request::serve).with_state(Arc::new(self));
        HttpDoor { url, listener, router, bounds, end }
    }
}

#[cfg(test)]
mod tests;
