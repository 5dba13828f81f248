//! Requests to a provider over HTTP: one attempt, bounded in time and size, cancelled by dropping it.

mod relay;

use std::time::Duration;

use hivekeep_kernel::SecretString;
use hivekeep_ports::ModelDelta;
use hivekeep_runtime::{
    http,
    json_text::{self, JsonPieces},
    read_secret,
};
use reqwest::{
    Client, RequestBuilder, Response,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    ModelProviderOptions,
    failure::{FailureKind, WireFailure},
    wire::{Sink, Splitter, Wire, WireAsk, WireEnd, WireRequest, whole},
};

pub(crate) use relay::{RelaySink, RelayedAnswer, speaks};

/// Largest body of an error that is read.
const ERROR_BYTES: usize = 64 * 1024;
/// Longest pause that a provider may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time for the end of a connection whose answer is whole, so that it can be used again.
const TAIL: Duration = Duration::from_millis(20);
/// Longest key.
const MAX_KEY_BYTES: usize = 4096;

/// HTTP client of one provider.
pub(crate) struct ModelTransport {
    wire: &'static dyn Wire,
    client: Client,
    options: ModelProviderOptions,
}

impl ModelTransport {
    /// Makes the client of a provider.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn new(
        wire: &'static dyn Wire,
        options: ModelProviderOptions,
    ) -> Result<Self, String> {
        let builder = http::client_builder(options.ca_file.as_deref()).await?;
        let builder = builder.http1_only().tcp_nodelay(true).user_agent("hivekeep");
        let client = builder.build().map_err(|error| format!("the HTTP client: {error}"))?;
        Ok(Self { wire, client, options })
    }

    /// Asks, and hands the answer on piece by piece.
    ///
    /// # Errors
    /// The failure; pieces that were passed on before it are not taken back.
    pub(crate) async fn generate(
        &self,
        ask: &WireAsk<'_>,
        sink: &mut Sink,
    ) -> Result<WireEnd, WireFailure> {
        let key = self.key().await?;
        let gone = sink.gone();
        let streamed = tokio::select! {
            streamed = self.stream(ask, key.as_ref(), sink) => streamed,
            () = gone => Err(WireFailure::cancelled()),
        };
        streamed.map_err(|failure| failure.without(key.as_ref().map(SecretString::expose)))
    }

    async fn stream(
        &self,
        ask: &WireAsk<'_>,
        key: Option<&SecretString>,
        sink: &mut Sink,
    ) -> Result<WireEnd, WireFailure> {
        let first = Instant::now() + Duration::from_secs(self.options.first_token_secs);
        let idle = Duration::from_secs(self.options.idle_secs);
        let wanted = self.wire.ask(ask);
        let request = self.post(&wanted, key)?;
        let mut response = self.send(request, first).await?;
        let mut splitter = Splitter::new(self.wire.framing());
        let mut decoder = self.wire.decoder();
        let (mut room, mut out) = (self.max_bytes(), Vec::new());
        let (mut began, mut done, mut pieces) = (false, false, JsonPieces::default());
        while !done {
            let until = if began { Instant::now() + idle } else { first };
            let chunk = timeout_at(until, response.chunk()).await;
            let chunk = chunk.map_err(|_| self.slow(began))?;
            let mut frame = match chunk.map_err(|error| cut(&error))? {
                Some(chunk) => {
                    room = room.checked_sub(chunk.len()).ok_or_else(|| self.too_large())?;
                    splitter.push(&chunk);
                    splitter.next()?
                }
                None => {
                    done = true;
                    splitter.last()?
                }
            };
            while let Some(data) = frame {
                began = true;
                let (data, alone) = pieces.next(&data);
                out.extend(alone.then(half_a_letter));
                done |= decoder.frame(&data, &mut out)?;
                for delta in out.drain(..) {
                    sink.take(delta).await?;
                }
                frame = splitter.next()?;
            }
        }
        if let Some(text) = splitter.stray().filter(|_| !began) {
            whole(&text, &mut *decoder, &mut out)?;
        }
        out.extend(pieces.ends_in_half().then(half_a_letter));
        for delta in out {
            sink.take(delta).await?;
        }
        let end = decoder.end();
        if end.stop.is_none() {
            return Err(WireFailure::broken("the answer was cut before its end"));
        }
        let _kept_for_the_next_request = timeout(TAIL, response.chunk()).await;
        Ok(end)
    }

    /// Embeds texts, once.
    ///
    /// # Errors
    /// The failure.
    pub(crate) async fn embed(
        &self,
        model: &str,
        texts: &[String],
    ) -> Result<crate::wire::WireVectors, WireFailure> {
        let key = self.key().await?;
        let redact = |failure: WireFailure| failure.without(key.as_ref().map(SecretString::expose));
        let Some(wanted) = self.wire.embed(model, texts) else {
            let why = format!("{} has no embeddings", self.options.kind.word());
            return Err(WireFailure::new(FailureKind::Unsupported, why));
        };
        let request = self.post(&wanted, key.as_ref())?;
        let limit = Instant::now() + Duration::from_secs(self.options.first_token_secs);
        let answer = self.json(request, limit).await.map_err(redact)?;
        self.wire.vectors(&answer)
    }

    /// Names of the models that the provider says it has, within a time.
    ///
    /// # Errors
    /// The failure.
    pub(crate) async fn list(&self, limit: Duration) -> Result<Vec<String>, WireFailure> {
        let key = self.key().await?;
        let redact = |failure: WireFailure| failure.without(key.as_ref().map(SecretString::expose));
        let request = self.request(self.client.get(self.url(self.wire.list())), key.as_ref())?;
        let answer = self.json(request, Instant::now() + limit).await.map_err(redact)?;
        Ok(self.wire.listed(&answer))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.root())
    }

    fn max_bytes(&self) -> usize {
        self.options.max_answer_kb.saturating_mul(1024)
    }

    fn post(
        &self,
        wanted: &WireRequest,
        key: Option<&SecretString>,
    ) -> Result<RequestBuilder, WireFailure> {
        let request = self.client.post(self.url(&wanted.path));
        let request = request.header(CONTENT_TYPE, "application/json");
        Ok(self.request(request, key)?.body(wanted.body.to_string()))
    }

    fn request(
        &self,
        mut request: RequestBuilder,
        key: Option<&SecretString>,
    ) -> Result<RequestBuilder, WireFailure> {
        for (name, value) in self.wire.headers() {
            request = request.header(*name, *value);
        }
        let Some(key) = key else { return Ok(request) };
        let (name, before) = self.wire.key_header();
        let value = HeaderValue::try_from(format!("{before}{}", key.expose()));
        let wrong = |_| WireFailure::new(FailureKind::Auth, "its key is not valid for a header");
        let mut value = value.map_err(wrong)?;
        value.set_sensitive(true);
        Ok(request.header(name, value))
    }

    /// Sends a request; returns only an answer of success.
    async fn send(&self, request: RequestBuilder, until: Instant) -> Result<Response, WireFailure> {
        let sent = timeout_at(until, request.send()).await.map_err(|_| self.slow(false))?;
        let mut response = sent.map_err(|error| unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = pause(response.headers());
        let read = timeout_at(until, read(&mut response, ERROR_BYTES)).await;
        let body = read.ok().and_then(Result::ok).unwrap_or_default();
        let body = json_text::from_slice(&body).unwrap_or_else(|_| {
            Value::from(serde_json::Map::from_iter([(
                "message".to_owned(),
                String::from_utf8_lossy(&body).into(),
            )]))
        });
        Err(WireFailure { retry_after, ..WireFailure::told(&body, Some(status.as_u16())) })
    }

    async fn json(&self, request: RequestBuilder, until: Instant) -> Result<Value, WireFailure> {
        let mut response = self.send(request, until).await?;
        let read = timeout_at(until, read(&mut response, self.max_bytes())).await;
        let body = read.map_err(|_| self.slow(false))??;
        json_text::from_slice(&body)
            .map_err(|error| WireFailure::broken(format!("the answer is not JSON: {error}")))
    }

    /// Key of the provider, read anew.
    async fn key(&self) -> Result<Option<SecretString>, WireFailure> {
        key(self.options.key_file.as_deref(), self.options.key_env.as_deref())
            .await
            .map_err(|why| WireFailure::new(FailureKind::Auth, why))
    }

    fn slow(&self, began: bool) -> WireFailure {
        let why = match began {
            false => format!("no answer began within {} s", self.options.first_token_secs),
            true => format!("the answer paused for longer than {} s", self.options.idle_secs),
        };
        WireFailure::new(FailureKind::TimedOut, why)
    }

    fn too_large(&self) -> WireFailure {
        WireFailure::too_large(format!(
            "the answer is larger than {} KiB",
            self.options.max_answer_kb
        ))
    }
}

/// Replacement character for a surrogate without its other half.
fn half_a_letter() -> ModelDelta {
    ModelDelta::Text("\u{fffd}".to_owned())
}

/// Reads a key from a file or from a variable.
///
/// # Errors
/// Names the place where it should be, and never the key.
pub(crate) async fn key(
    file: Option<&std::path::Path>,
    variable: Option<&str>,
) -> Result<Option<SecretString>, String> {
    let (place, text) = match (file, variable) {
        (Some(file), _) => (file.display().to_string(), read_secret(file).await?),
        (None, Some(name)) => {
            let place = format!("the variable {name}");
            let text = std::env::var(name).map_err(|error| format!("{place}: {error}"))?;
            (place, text)
        }
        (None, None) => return Ok(None),
    };
    let text = text.trim();
    match text.len() {
        1..=MAX_KEY_BYTES if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(SecretString::new(text)))
        }
        _ => Err(format!("{place} does not hold a valid key")),
    }
}

/// Reads a body up to a limit, which holds for what it decompresses to.
pub(crate) async fn read(response: &mut Response, most: usize) -> Result<Vec<u8>, WireFailure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| cut(&error))? {
        if body.len() + chunk.len() > most {
            return Err(WireFailure::too_large(format!("the answer is larger than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

fn cut(error: &reqwest::Error) -> WireFailure {
    WireFailure::broken(format!("the connection was cut: {}", innermost(error)))
}

/// Failure of a request that got no answer: no connection, or one that ended before.
pub(crate) fn unreachable(error: &reqwest::Error) -> WireFailure {
    let kind = if error.is_connect() { FailureKind::Unavailable } else { FailureKind::Broken };
    WireFailure::new(kind, format!("the request failed: {}", innermost(error)))
}

/// The innermost cause, which says most, and has no URL.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string().chars().take(200).collect()
}
