//! Server over streamable HTTP: its client, its credential, and what a refusal says of it.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use hivekeep_kernel::ports::SourceState;
use reqwest::{Client, StatusCode, redirect::Policy};
use rmcp::{
    service::ClientInitializeError,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{link::SourceShared, stdio::read_secret};

/// Time for a connection with its handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

pub(crate) type HttpTransport = StreamableHttpClientTransport<Client>;

/// Transport to a URL. Nothing is redirected: a credential goes to the operator's address alone.
///
/// # Errors
/// The reason, for people.
pub(crate) async fn transport(shared: &SourceShared, url: &str) -> Result<HttpTransport, String> {
    let ca_file = shared.options.ca_file.clone();
    let tls = tokio::task::spawn_blocking(move || tls(ca_file.as_deref())).await;
    let tls = tls.map_err(|error| error.to_string())??;
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .build()
        .map_err(|error| format!("the HTTP client: {error}"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(file) = &shared.options.token_file {
        config = config.auth_header(read_secret(file).await?);
    }
    Ok(HttpTransport::with_client(client, config))
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

/// What a handshake that failed says of the source.
pub(crate) fn state_of(error: &ClientInitializeError, has_token: bool) -> SourceState {
    let challenge = error.auth_challenge();
    if challenge.is_none() && !unauthorized(error) {
        return SourceState::Unreachable(handshake(error));
    }
    match challenge {
        _ if !has_token => SourceState::AuthRequired,
        Some(challenge) if challenge.to_ascii_lowercase().contains("expired") => {
            SourceState::AuthExpired
        }
        _ => SourceState::AuthInvalid,
    }
}

/// A handshake's failure, for people.
pub(crate) fn handshake(error: &ClientInitializeError) -> String {
    format!("the handshake failed: {:.300}", chain(error))
}

/// True when the server answered 401 or 403 without a challenge.
fn unauthorized(error: &ClientInitializeError) -> bool {
    let ClientInitializeError::TransportError { error, .. } = error else { return false };
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.error.as_ref());
    while let Some(error) = cause {
        let status = error.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status);
        if matches!(status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
