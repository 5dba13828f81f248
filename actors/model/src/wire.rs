//! Adapters to the wire formats of providers: a request is encoded, an answer is decoded frame by frame, and its
//! pieces are collected.
//!
//! Encoding and decoding do no I/O. What a provider sends is untrusted: an adapter holds no more of it than
//! the frame and the tools that the model asks for, which are bounded.

mod anthropic;
mod calls;
mod frames;
mod gemini;
mod ollama;
mod openai;

use hivekeep_ports::{ModelDelta, ModelRequest, ModelStop, ModelToolCall};
use hivekeep_runtime::json_text;
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

pub(crate) use frames::{Framing, Splitter};
pub(crate) use gemini::segment;

use crate::{
    ModelProviderKind,
    failure::{WireFailure, plain},
};

/// Question for one model, with its bound.
pub(crate) struct WireAsk<'a> {
    pub(crate) request: &'a ModelRequest,
    /// Name that the provider has for the model.
    pub(crate) model: &'a str,
    pub(crate) max_tokens: u32,
}

/// Request below the root of the provider's API.
#[derive(Debug)]
pub(crate) struct WireRequest {
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl WireRequest {
    fn new(path: impl Into<String>, body: Value) -> Self {
        Self { path: path.into(), body }
    }
}

/// End of an answer. Tokens are missing where the provider does not count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WireEnd {
    /// Missing while the answer has not ended.
    pub(crate) stop: Option<ModelStop>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

/// Decoder of one answer.
pub(crate) trait AnswerDecoder: Send {
    /// Takes a frame, and adds what it brings. True when no other frame is needed.
    ///
    /// # Errors
    /// The provider's own error, or a frame that makes no sense.
    fn frame(&mut self, data: &str, out: &mut Vec<ModelDelta>) -> Result<bool, WireFailure>;

    /// End of the answer, as far as it went.
    fn end(&self) -> WireEnd;
}

/// Vectors of texts, in their order, and the tokens that were read.
pub(crate) type WireVectors = (Vec<Vec<f32>>, Option<u64>);

/// A wire format.
pub(crate) trait Wire: Send + Sync {
    /// How answers are cut into frames.
    fn framing(&self) -> Framing {
        Framing::Events
    }
    /// Header that carries the key, and the prefix of its value.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }
    /// Headers of each request.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Encodes a question whose answer is streamed.
    fn ask(&self, ask: &WireAsk<'_>) -> WireRequest;
    /// Decoder of the answer.
    fn decoder(&self) -> Box<dyn AnswerDecoder>;
    /// Encodes texts to embed; `None` where the format has no embeddings.
    fn embed(&self, model: &str, texts: &[String]) -> Option<WireRequest>;
    /// Decodes the vectors of embedded texts.
    ///
    /// # Errors
    /// For an answer that makes no sense.
    fn vectors(&self, answer: &Value) -> Result<WireVectors, WireFailure>;
    /// Path that lists the provider's models.
    fn list(&self) -> &'static str {
        "/models"
    }
    /// Names in a list of models.
    fn listed(&self, answer: &Value) -> Vec<String> {
        names(&answer["data"], "id")
    }
}

/// Adapter of a kind; `None` for one without a wire.
pub(crate) fn of(kind: ModelProviderKind) -> Option<&'static dyn Wire> {
    Some(match kind {
        ModelProviderKind::Openai => &openai::OpenAi { newer: true },
        ModelProviderKind::OpenaiCompatible | ModelProviderKind::LlamaServer => {
            &openai::OpenAi { newer: false }
        }
        ModelProviderKind::Anthropic => &anthropic::Anthropic,
        ModelProviderKind::Gemini => &gemini::Gemini,
        ModelProviderKind::Ollama => &ollama::Ollama,
        ModelProviderKind::Scripted => return None,
    })
}

/// Most models of a list that are looked at.
const MAX_LISTED: usize = 1_000;

fn names(list: &Value, key: &str) -> Vec<String> {
    let rows = list.as_array().into_iter().flatten().take(MAX_LISTED);
    rows.filter_map(|row| row[key].as_str().map(str::to_owned)).collect()
}

/// Decodes an answer that is not a stream: the error, or the whole answer, of a server that does not stream.
///
/// # Errors
/// The server's own error, unless the text is an answer.
pub(crate) fn whole(
    text: &str,
    decoder: &mut dyn AnswerDecoder,
    out: &mut Vec<ModelDelta>,
) -> Result<(), WireFailure> {
    let Ok(answer) = json_text::from_str::<Value>(text) else {
        return Err(WireFailure::broken(format!("it answered with no stream: {}", plain(text))));
    };
    let frames = answer.as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice);
    for frame in frames {
        decoder.frame(&frame.to_string(), out)?;
    }
    match decoder.end().stop {
        Some(_) => Ok(()),
        None => Err(WireFailure::told(&answer, None)),
    }
}

/// Adds a value's text, if it has any.
fn text(value: &Value, out: &mut Vec<ModelDelta>) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        out.push(ModelDelta::Text(text.to_owned()));
    }
}

fn parse(data: &str) -> Result<Value, WireFailure> {
    json_text::from_str(data)
        .map_err(|error| WireFailure::broken(format!("a frame of the answer is not JSON: {error}")))
}

/// Vectors of a list of lists.
fn vectors<'a>(rows: impl Iterator<Item = &'a Value>) -> Result<Vec<Vec<f32>>, WireFailure> {
    let wrong = || WireFailure::broken("a vector is missing or is not of numbers");
    rows.map(|row| {
        let row = row.as_array().ok_or_else(wrong)?;
        #[allow(clippy::cast_possible_truncation)]
        row.iter().map(|value| value.as_f64().map(|value| value as f32).ok_or_else(wrong)).collect()
    })
    .collect()
}

/// Where the pieces of one answer go: each is handed on as it comes, and kept for the whole.
pub(crate) struct Sink {
    reader: mpsc::Sender<ModelDelta>,
    pub(crate) text: String,
    pub(crate) calls: Vec<ModelToolCall>,
    /// Bytes that were handed on.
    pub(crate) bytes: usize,
    /// Time of the first piece.
    pub(crate) first: Option<Instant>,
}

impl Sink {
    pub(crate) fn new(reader: mpsc::Sender<ModelDelta>) -> Self {
        Self { reader, text: String::new(), calls: Vec::new(), bytes: 0, first: None }
    }

    /// Hands a piece on. Waits for a slow reader.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub(crate) async fn take(&mut self, delta: ModelDelta) -> Result<(), WireFailure> {
        self.first.get_or_insert_with(Instant::now);
        match &delta {
            ModelDelta::Text(text) => {
                self.bytes += text.len();
                self.text.push_str(text);
            }
            ModelDelta::ToolCall(call) => {
                self.bytes += call.name.len() + call.arguments.to_string().len();
                self.calls.push(call.clone());
            }
        }
        self.reader.send(delta).await.map_err(|_| WireFailure::cancelled())
    }

    /// Waits until nobody reads any more.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let reader = self.reader.clone();
        async move { reader.closed().await }
    }
}
