//! Server over streamable HTTP: its client, its credential, and what a refusal says of it.

use std::error::Error;

use hivekeep_kernel::ports::SourceState;
use hivekeep_runtime::{http, read_secret};
use reqwest::{Client, StatusCode};
use rmcp::{
    service::ClientInitializeError,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};

use crate::link::SourceShared;

pub(crate) type HttpTransport = StreamableHttpClientTransport<Client>;

/// Transport to a URL. Nothing is redirected: a credential goes to the operator's address alone.
///
/// # Errors
/// The reason, for people.
pub(crate) async fn transport(shared: &SourceShared, url: &str) -> Result<HttpTransport, String> {
    let builder = http::client_builder(shared.options.ca_file.as_deref()).await?;
    let client = builder.build().map_err(|error| format!("the HTTP client: {error}"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(file) = &shared.options.token_file {
        config = config.auth_header(read_secret(file).await?);
    }
    Ok(HttpTransport::with_client(client, config))
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
