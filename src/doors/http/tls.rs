//! TLS of a door: rustls on ring, from a certificate chain and a key in PEM files.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

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
pub(in crate::doors) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsFileError> {
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
