//! Request of a program, passed on with the provider's key, and its answer, piece by piece.

use hivekeep_kernel::SecretString;
use hivekeep_ports::{ModelApi, RelayPiece, RelayRequest};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::sync::mpsc;

use super::*;
use crate::{ModelProviderKind, failure::plain, relay_meter::RelayMeter, wire::segment};

/// Answer that was passed on to its end.
#[derive(Debug)]
pub(crate) struct RelayedAnswer {
    /// Refusal of the provider, which was passed on, too.
    pub(crate) refused: Option<WireFailure>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

/// Where the pieces of an answer go.
pub(crate) struct RelaySink {
    to: mpsc::Sender<RelayPiece>,
    /// Bytes of bodies that were handed on.
    pub(crate) bytes: usize,
    /// Time of the first piece.
    pub(crate) first: Option<Instant>,
}

impl RelaySink {
    pub(crate) fn new(to: mpsc::Sender<RelayPiece>) -> Self {
        Self { to, bytes: 0, first: None }
    }

    async fn take(&mut self, piece: RelayPiece) -> Result<(), WireFailure> {
        self.first.get_or_insert_with(Instant::now);
        if let RelayPiece::Body { bytes, .. } = &piece {
            self.bytes += bytes.len();
        }
        self.to.send(piece).await.map_err(|_| WireFailure::cancelled())
    }
}

/// Whether a kind of provider speaks an API.
pub(crate) fn speaks(kind: ModelProviderKind, api: ModelApi) -> bool {
    use ModelProviderKind::{Anthropic, Gemini, LlamaServer, Openai, OpenaiCompatible};
    match api {
        ModelApi::Chat | ModelApi::Responses => {
            matches!(kind, Openai | OpenaiCompatible | LlamaServer)
        }
        ModelApi::Messages => kind == Anthropic,
        ModelApi::Gemini => kind == Gemini,
    }
}

impl ModelTransport {
    /// Passes a request on, and its answer back.
    ///
    /// # Errors
    /// The failure; what was passed on before it is not taken back.
    pub(crate) async fn relay(
        &self,
        ask: &RelayRequest,
        sink: &mut RelaySink,
    ) -> Result<RelayedAnswer, WireFailure> {
        let key = self.key().await?;
        let to = sink.to.clone();
        let relayed = tokio::select! {
            relayed = self.pass(ask, key.as_ref(), sink) => relayed,
            () = to.closed() => Err(WireFailure::cancelled()),
        };
        relayed.map_err(|failure| failure.without(key.as_ref().map(SecretString::expose)))
    }

    async fn pass(
        &self,
        ask: &RelayRequest,
        key: Option<&SecretString>,
        sink: &mut RelaySink,
    ) -> Result<RelayedAnswer, WireFailure> {
        let first = Instant::now() + Duration::from_secs(self.options.first_token_secs);
        let mut request = self.client.post(self.url(&path(ask)));
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = self.request(request, key)?.body(ask.body.clone());
        let sent = timeout_at(first, request.send()).await.map_err(|_| self.slow(false))?;
        let mut response = sent.map_err(|error| unreachable(&error))?;
        let (status, content_type) = (response.status(), content_type(response.headers()));
        let is_stream = content_type.starts_with("text/event-stream");
        let retry_after = pause(response.headers()).map(|pause| pause.as_secs());
        let head = RelayPiece::Head { status: status.as_u16(), content_type, retry_after };
        if !status.is_success() {
            let read = timeout_at(first, read(&mut response, ERROR_BYTES)).await;
            let body = read.ok().and_then(Result::ok).unwrap_or_default();
            return self.refusal(head, status.as_u16(), &body, key, sink).await;
        }
        sink.take(head).await?;
        let mut meter = RelayMeter::new(ask.api);
        match is_stream {
            true => self.events(&mut response, first, &mut meter, sink).await?,
            false => {
                let read = timeout_at(first, read(&mut response, self.max_bytes())).await;
                let body = read.map_err(|_| self.slow(false))??;
                meter.document(&body);
                sink.take(RelayPiece::Body { bytes: body.into(), ends: true }).await?;
            }
        }
        meter.whole()?;
        let RelayMeter { input_tokens, output_tokens, .. } = meter;
        Ok(RelayedAnswer { refused: None, input_tokens, output_tokens })
    }

    /// Passes events on as they come, up to the last.
    async fn events(
        &self,
        response: &mut Response,
        first: Instant,
        meter: &mut RelayMeter,
        sink: &mut RelaySink,
    ) -> Result<(), WireFailure> {
        let idle = Duration::from_secs(self.options.idle_secs);
        let mut splitter = Splitter::new(crate::wire::Framing::Events);
        let (mut room, mut began) = (self.max_bytes(), false);
        while !meter.is_over() {
            let until = if began { Instant::now() + idle } else { first };
            let chunk = timeout_at(until, response.chunk()).await;
            let chunk = chunk.map_err(|_| self.slow(began))?.map_err(|error| cut(&error))?;
            let Some(bytes) = chunk else {
                // An event that the end of the stream completes was never complete for its reader.
                return Ok(());
            };
            began = true;
            room = room.checked_sub(bytes.len()).ok_or_else(|| self.too_large())?;
            splitter.push(&bytes);
            while let Some(event) = splitter.next()? {
                meter.event(&event);
            }
            sink.take(RelayPiece::Body { bytes, ends: meter.stops() }).await?;
        }
        let _kept_for_the_next_request = timeout(TAIL, response.chunk()).await;
        Ok(())
    }

    /// Passes a provider's refusal on, without the key that it may have repeated.
    async fn refusal(
        &self,
        head: RelayPiece,
        status: u16,
        body: &[u8],
        key: Option<&SecretString>,
        sink: &mut RelaySink,
    ) -> Result<RelayedAnswer, WireFailure> {
        let mut text = String::from_utf8_lossy(body).into_owned();
        if let Some(key) = key {
            text = text.replace(key.expose(), hivekeep_kernel::secret::REDACTED);
        }
        let told: Value = json_text::from_str(&text)
            .unwrap_or_else(|_| serde_json::json!({ "message": plain(&text) }));
        sink.take(head).await?;
        sink.take(RelayPiece::Body { bytes: text.into(), ends: true }).await?;
        let refused = Some(WireFailure::told(&told, Some(status)));
        Ok(RelayedAnswer { refused, input_tokens: None, output_tokens: None })
    }
}

/// Path below the root of the provider's API.
fn path(ask: &RelayRequest) -> String {
    match ask.api {
        ModelApi::Chat => "/chat/completions".to_owned(),
        ModelApi::Responses => "/responses".to_owned(),
        ModelApi::Messages => "/messages".to_owned(),
        ModelApi::Gemini => {
            let model = segment(&ask.model);
            match ask.stream {
                true => format!("/models/{model}:streamGenerateContent?alt=sse"),
                false => format!("/models/{model}:generateContent"),
            }
        }
    }
}

/// Longest type of an answer that is passed on.
const MAX_TYPE_CHARS: usize = 200;

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("application/json").chars().take(MAX_TYPE_CHARS).collect()
}
