//! HTTP clients of the daemon: TLS on ring with the host's authorities, no redirects, no proxies of the
//! environment, so that a credential goes to the operator's address alone. Credentials in files of the host are
//! read when they are used, so that whatever renews them can do so.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

use reqwest::{Client, ClientBuilder, redirect::Policy};
use tokio::io::AsyncReadExt;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::pem::PemObject};

pub use tokio_rustls::rustls::pki_types::CertificateDer;

/// Time for a connection with its handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Builder of a client that also trusts the authorities (PEM) of a file. Reads files of the host.
///
/// # Errors
/// The reason, for people.
pub async fn client_builder(ca_file: Option<&Path>) -> Result<ClientBuilder, String> {
    let ca_file = ca_file.map(Path::to_path_buf);
    let tls = tokio::task::spawn_blocking(move || tls(ca_file.as_deref())).await;
    let tls = tls.map_err(|error| error.to_string())??;
    Ok(Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT))
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let wrong = |why: String| format!("`ca_file`: {why}");
    let more = ca_file.map(authorities).transpose().map_err(wrong)?;
    trusting(more.unwrap_or_default())
}

/// Certificates (PEM) of a file, at least one. Blocks.
///
/// # Errors
/// The reason, for people.
pub fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("it has no certificate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The host's authorities, as the first client finds them.
static HOST_AUTHORITIES: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

/// TLS that trusts the host's authorities and these. Blocks.
///
/// # Errors
/// The reason, for people: one of them is not an authority's certificate.
pub fn trusting(more: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
    let mut roots = HOST_AUTHORITIES.clone();
    for certificate in more {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| format!("TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Largest file with a secret.
const SECRET_BYTES: u64 = 64 * 1024;

/// Reads a small text file without the end of its line.
///
/// # Errors
/// The reason, for people; never what is in it.
pub async fn read_secret(file: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{} cannot be read: {why}", file.display());
    let opened = tokio::fs::File::open(file).await.map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let read = opened.take(SECRET_BYTES + 1).read_to_string(&mut text).await;
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > SECRET_BYTES {
        return Err(wrong(format!("it is larger than {SECRET_BYTES} bytes")));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    match text.is_empty() || text.contains('\0') {
        true => Err(wrong("it has no text".to_owned())),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_without_certificates_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&file, text).expect("writes");
            let refused = client_builder(Some(&file)).await.expect_err("refused");
            assert!(!refused.is_empty(), "{text}");
        }
        assert!(client_builder(Some(&folder.path().join("none"))).await.is_err());
        assert!(client_builder(None).await.is_ok());
    }
}
