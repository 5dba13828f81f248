//! Server over streamable HTTP: its client, its credential, and what a refusal says of it.

use std::{collections::HashMap, error::Error, sync::Arc};

use futures::{StreamExt, TryStreamExt};
use hivekeep_ports::SourceState;
use hivekeep_runtime::{http, json_text, read_secret};
use reqwest::{
    Client, StatusCode,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::ClientJsonRpcMessage,
    service::{ClientInitializeError, ServiceError},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            AuthRequiredError, InsufficientScopeError, StreamableHttpClient,
            StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};

use crate::link::SourceShared;

type Headers = HashMap<HeaderName, HeaderValue>;
type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;
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

/// HTTP client that reads a server's events with well-formed texts. Bodies of JSON it leaves to the
/// protocol's own client, which answers a call with what is wrong with one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventClient(Client);

fn well_formed(events: BoxedSseResponse) -> BoxedSseResponse {
    let mended = events.map_ok(|mut event| {
        event.data = event.data.map(|data| json_text::mended(data.as_bytes()).into_owned());
        event
    });
    mended.boxed()
}

fn answered(answer: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
    match answer {
        StreamableHttpPostResponse::Sse(events, session) => {
            StreamableHttpPostResponse::Sse(well_formed(events), session)
        }
        other => other,
    }
}

impl StreamableHttpClient for EventClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        self.0.post_message(uri, message, session, token, headers).await.map(answered)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        let sent = self
            .0
            .post_message_with_max_sse_event_size(uri, message, session, token, headers, most);
        sent.await.map(answered)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<BoxedSseResponse> {
        self.0.get_stream(uri, session, last_event, token, headers).await.map(well_formed)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Outcome<BoxedSseResponse> {
        let opened = self
            .0
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, most);
        opened.await.map(well_formed)
    }
}
