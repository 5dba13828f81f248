//! HTTP clients of the daemon: TLS on ring with the host's authorities, no redirects, no proxies of the
//! environment, so that a credential goes to the operator's address alone.

use std::{path::Path, sync::Arc, time::Duration};

use reqwest::{Client, ClientBuilder, redirect::Policy};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

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
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let wrong = |why: String| format!("`ca_file`: {why}");
        let read =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for certificate in read.map_err(|error| wrong(error.to_string()))? {
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    let provider = Arc::new(ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| format!("TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
