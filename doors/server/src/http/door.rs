//! Door over HTTP, bound and not served yet, with TLS by rustls on ring: a certificate chain and a key in PEM files.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Router;
use hivekeep_runtime::{ListenerOptions, log::LogError};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    caller::TokenError,
    server::{self, ServerBounds},
};

/// Schemes of URLs.
pub const HTTP: [&str; 2] = ["http", "https"];

/// The reason why a door does not open.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another `{section}.bind`")]
    Bind {
        /// Section of the configuration.
        section: &'static str,
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no TLS.
    #[error("{section}: {source}")]
    Tls {
        /// Section of the configuration.
        section: &'static str,
        /// The cause.
        source: TlsFileError,
    },
    /// A secret of the door cannot be used.
    #[error(transparent)]
    Secret(#[from] TokenError),
    /// The door's records in the journal cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The folder in which the MCP door keeps its clients cannot be read.
    #[error("the folder of HTTP clients in the state folder: {0}")]
    Clients(io::Error),
    /// The daemon has no workspaces.
    #[error("http.ports: the daemon has no workspaces")]
    NoWorkspaces,
}

/// A bound address.
pub struct DoorListener {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    /// Address that the system gave.
    pub address: SocketAddr,
}

impl DoorListener {
    /// Binds the address of a section. Legal in a runtime; reads two files where there is TLS.
    ///
    /// # Errors
    /// `Bind`, `Tls`.
    pub fn bind(section: &'static str, options: &ListenerOptions) -> Result<Self, DoorError> {
        let bind = |source| DoorError::Bind { section, address: options.bind.clone(), source };
        let address = options.address().map_err(|why| bind(io::Error::other(why)))?;
        Self::bind_at(section, options, address)
    }

    /// Binds another address than the configured one.
    ///
    /// # Errors
    /// `Bind`, `Tls`.
    pub fn bind_at(
        section: &'static str,
        options: &ListenerOptions,
        address: SocketAddr,
    ) -> Result<Self, DoorError> {
        let tls = match (&options.tls_cert, &options.tls_key) {
            (Some(cert), Some(key)) => Some(tls_acceptor(cert, key)),
            _ => None,
        };
        let tls = tls.transpose().map_err(|source| DoorError::Tls { section, source })?;
        let bind = |source| DoorError::Bind { section, address: address.to_string(), source };
        let listener = StdListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let listener = TcpListener::from_std(listener).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, tls, address })
    }

    /// The scheme of its URLs, of that without and that with TLS.
    pub fn scheme(&self, schemes: [&'static str; 2]) -> &'static str {
        schemes[usize::from(self.tls.is_some())]
    }

    /// Serves until the end token fires.
    pub async fn serve(self, router: Router, bounds: ServerBounds, end: CancellationToken) {
        server::serve(self.listener, self.tls, router, bounds, end).await;
    }
}

/// A door that waits to let clients in.
pub struct HttpDoor {
    /// URL for clients.
    pub url: String,
    /// Address that it is bound to.
    pub listener: DoorListener,
    /// Routes that it serves.
    pub router: Router,
    /// Bounds of its connections.
    pub bounds: ServerBounds,
    /// Token that closes it.
    pub end: CancellationToken,
}

impl HttpDoor {
    /// Serves until the end token fires.
    pub async fn serve(self) {
        self.listener.serve(self.router, self.bounds, self.end).await;
    }
}

/// The reason why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// The key can be read by others.
    #[error("the key {} can be read by others (mode {mode:o}): run `chmod 600` on it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is not PEM of what it should hold.
    #[error("{} is not PEM with {what}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// Certificate and key do not go together.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Reads both files.
///
/// # Errors
/// When one cannot be used.
fn tls_acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsFileError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TlsFileError::Io { path: path.to_owned(), source })
    };
    let broken = |path: &Path, what| {
        let path = path.to_owned();
        move |source| TlsFileError::Pem { path, what, source }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(cert)?).collect();
    let chain = chain.map_err(broken(cert, "certificates"))?;
    let secret = read(key)?;
    let mode = std::fs::metadata(key).map_or(0, |found| found.mode() & 0o7777);
    if mode & 0o077 != 0 {
        return Err(TlsFileError::Exposed { path: key.to_owned(), mode });
    }
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(broken(key, "a private key"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
