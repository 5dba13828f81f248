//! URLs for ports of workspaces: a listener that routes by `Host` into workspaces over their links.
//!
//! ```text
//! connection (bounds, TLS) ─▶ Host ─▶ workspace ─▶ who may ─▶ credentials out ─▶ proxy ─▶ port
//! ```
//! `PORT-NAME.DOMAIN` is an origin of its own to a browser. What is shown to this door is for this door:
//! a guest never sees a credential, a link or a cookie of ours, and the answers of one origin set no cookie
//! for another.

mod access;
mod answer;
pub(in crate::doors) mod cookies;
mod host;
mod public;
mod request;
mod sign;
mod urls;

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hivekeep_kernel::{
    SessionId, SharedPool, User, WorkspaceId,
    ports::{PortUrls, WorkspaceFiles, WorkspacePorts},
};
use hivekeep_runtime::log::LogError;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    DaemonServices,
    http::{
        server::{self, ServerBounds},
        tls::{self, TlsFileError},
        token::{BearerToken, TokenError},
    },
    proxy::Tunnels,
};
use crate::{config::PortUrlOptions, credentials::Credentials};
use public::PublicPorts;
use sign::LinkKey;
use urls::Urls;

/// The reason why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `port_urls.bind`")]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no TLS.
    #[error("port_urls: {0}")]
    Tls(#[from] TlsFileError),
    /// The key of links cannot be used.
    #[error(transparent)]
    Key(#[from] TokenError),
    /// The public ports in the journal cannot be read.
    #[error(transparent)]
    Public(#[from] LogError),
    /// The daemon has no workspaces.
    #[error("port_urls: the daemon has no workspaces")]
    NoWorkspaces,
}

/// State of the door that its requests stand on.
struct PortDoor {
    options: PortUrlOptions,
    credentials: Credentials,
    /// User of a session.
    users: Box<dyn Fn(SessionId) -> Option<User> + Send + Sync>,
    workspaces: Arc<dyn WorkspaceFiles>,
    ports: Arc<dyn WorkspacePorts>,
    urls: Arc<Urls>,
    pools: PortPools,
}

/// What the ports of all workspaces share: whoever asks for those of one takes half of it at most, since clients of
/// a public port are nobody who is known.
struct PortPools {
    requests: SharedPool<WorkspaceId>,
    tunnels: Tunnels,
}

impl PortPools {
    fn new(options: &PortUrlOptions, inside: TaskTracker, end: CancellationToken) -> Self {
        let upgrades = ("port_urls.max_upgrades", options.max_upgrades);
        Self {
            requests: SharedPool::new("port_urls.max_requests", options.max_requests),
            tunnels: Tunnels::new(upgrades, inside, end),
        }
    }
}

/// The open door.
pub struct PortsDoor {
    /// How the URLs look.
    pub example: String,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: ServerBounds,
    end: CancellationToken,
}

/// Opens the door and offers its URLs; [`PortsDoor::serve`] lets clients in.
///
/// # Errors
/// When the address is taken, or a file or the journal unusable.
pub async fn open(
    core: Arc<DaemonServices>,
    inside: TaskTracker,
    end: CancellationToken,
) -> Result<PortsDoor, Error> {
    let options = core.config.port_urls.clone();
    let workspaces = core.ports.find::<dyn WorkspaceFiles>().ok_or(Error::NoWorkspaces)?;
    let ports = core.ports.find::<dyn WorkspacePorts>().ok_or(Error::NoWorkspaces)?;
    let public = PublicPorts::open(&core.journal, workspaces.clone()).await?;
    public.forget_destroyed_until(&core.journal, end.clone());
    let key = LinkKey::new(&BearerToken::load_or_create(&core.folders.port_url_key())?);
    let bound = Bound::to(&options).await?;
    let urls = bound.urls(&options, key, public);
    core.ports.offer::<dyn PortUrls>(urls.clone());
    let sessions = core.sessions.clone();
    let door = PortDoor {
        pools: PortPools::new(&options, inside, end.clone()),
        options,
        credentials: core.credentials.clone(),
        users: Box::new(move |session| sessions.row(session).and_then(|row| row.user)),
        workspaces,
        ports,
        urls,
    };
    Ok(bound.open(door, end))
}

/// A listener that nobody is let in by yet.
struct Bound {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    port: u16,
}

impl Bound {
    async fn to(options: &PortUrlOptions) -> Result<Self, Error> {
        let tls = match (&options.tls_cert, &options.tls_key) {
            (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
            _ => None,
        };
        let bind = |source| Error::Bind { address: options.bind.clone(), source };
        let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let port = listener.local_addr().map_err(bind)?.port();
        Ok(Self { listener, tls, port })
    }

    fn urls(&self, options: &PortUrlOptions, key: LinkKey, public: PublicPorts) -> Arc<Urls> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let port = options.public_port.unwrap_or(self.port);
        Arc::new(Urls::new(scheme, &options.domain, port, key, public))
    }

    fn open(self, door: PortDoor, end: CancellationToken) -> PortsDoor {
        let options = &door.options;
        let bounds = ServerBounds {
            connections: options.max_connections,
            header_bytes: options.max_header_kb * 1024,
            header_timeout: Duration::from_secs(options.header_timeout_secs),
            write_timeout: Duration::from_secs(options.idle_timeout_secs),
        };
        let example = door.urls.of("NAME", "PORT");
        let router = Router::new().fallback(request::serve).with_state(Arc::new(door));
        PortsDoor { example, listener: self.listener, tls: self.tls, router, bounds, end }
    }
}

impl PortsDoor {
    /// Serves until the end token fires.
    pub async fn serve(self) {
        server::serve(self.listener, self.tls, self.router, self.bounds, self.end).await;
    }
}

#[cfg(test)]
mod tests;
