//! HTTP client that reads a server's events with well-formed texts. Bodies of JSON it leaves to the protocol's own
//! client, which answers a call with what is wrong with one.

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt, TryStreamExt};
use hivekeep_runtime::json_text;
use reqwest::{
    Client,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};

type Headers = HashMap<HeaderName, HeaderValue>;
type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;

/// The client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventClient(pub(super) Client);

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
