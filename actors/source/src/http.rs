//! Server over streamable HTTP: its client, its credential, and what a refusal says of it.

mod events;

use std::error::Error;

use hivekeep_kernel::ports::SourceState;
use hivekeep_runtime::{http, read_secret};
use reqwest::StatusCode;
use rmcp::{
    service::{ClientInitializeError, ServiceError},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::{
            AuthRequiredError, InsufficientScopeError, StreamableHttpClientTransportConfig,
        },
    },
};

use crate::link::SourceShared;
use events::EventClient;

pub(crate) type HttpTransport = StreamableHttpClientTransport<EventClient>;

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
    Ok(HttpTransport::with_client(EventClient(client), config))
}

/// State of a source after a failed handshake.
pub(crate) fn state_of(error: &ClientInitializeError, has_token: bool) -> SourceState {
    let challenge = error.auth_challenge().map(str::to_owned).or_else(|| match error {
        ClientInitializeError::TransportError { error, .. } => challenge(error.error.as_ref()),
        _ => None,
    });
    match challenge {
        Some(challenge) => refused(&challenge, has_token),
        None => SourceState::Unreachable(handshake(error)),
    }
}

/// State of a source that does not let a request in; `None` for a request that failed otherwise.
pub(crate) fn refusal(error: &ServiceError, has_token: bool) -> Option<SourceState> {
    let ServiceError::TransportSend(error) = error else { return None };
    Some(refused(&challenge(error.error.as_ref())?, has_token))
}

fn refused(challenge: &str, has_token: bool) -> SourceState {
    match has_token {
        false => SourceState::AuthRequired,
        true if challenge.to_ascii_lowercase().contains("expired") => SourceState::AuthExpired,
        true => SourceState::AuthInvalid,
    }
}

/// A handshake's failure, for people.
pub(crate) fn handshake(error: &ClientInitializeError) -> String {
    format!("the handshake failed: {:.300}", chain(error))
}

/// The challenge of a server that answered 401 or 403; empty where it gave none.
fn challenge(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<AuthRequiredError>() {
            return Some(error.www_authenticate_header.clone());
        }
        if let Some(error) = error.downcast_ref::<InsufficientScopeError>() {
            return Some(error.www_authenticate_header.clone());
        }
        let status = error.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status);
        if matches!(status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) {
            return Some(String::new());
        }
        cause = error.source();
    }
    None
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
