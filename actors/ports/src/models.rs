//! Language models port: answers and embeddings of whatever models the operator configured.
//!
//! Answers of a provider are untrusted text: bounded before they are handed on, and never an instruction.

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use hivekeep_kernel::{SessionId, ToolError, codes};

/// Number of deltas that wait for a slow reader; then the provider's stream is not read on.
pub const DELTAS_AHEAD: usize = 64;
/// Details of the error of a request: tokens and millionths of a dollar that it cost all the same.
pub const LOST_TOKENS: &str = "lost_tokens";
/// See [`LOST_TOKENS`].
pub const LOST_MICRO_USD: &str = "lost_micro_usd";

/// Question to a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Session whose budget pays.
    pub session: SessionId,
    /// Alias, `PROVIDER/MODEL`, or a provider that has a single model. Unknown names are refused.
    pub model: String,
    /// Instructions of the caller.
    pub system: Option<String>,
    /// The conversation, oldest first. The last one is not the model's.
    pub messages: Vec<ModelMessage>,
    /// Tools that the model may ask for.
    pub tools: Vec<ModelTool>,
    /// Whether the model has to ask for a tool.
    pub tool_choice: ModelToolChoice,
    /// JSON Schema that the answer's text has to match; the answer is checked against it.
    pub schema: Option<Value>,
    /// Temperature from 0 to 2; the provider's default without.
    pub temperature: Option<f64>,
    /// Most tokens of the answer; the model's configured bound without.
    pub max_output_tokens: Option<u32>,
    /// Texts at which the answer ends.
    pub stop: Vec<String>,
    /// End of the whole request, waits and repetitions included.
    pub deadline: Instant,
}

impl ModelRequest {
    /// A single question without tools.
    pub fn question(
        session: SessionId,
        model: impl Into<String>,
        text: impl Into<String>,
        deadline: Instant,
    ) -> Self {
        Self {
            session,
            model: model.into(),
            system: None,
            messages: vec![ModelMessage::User(text.into())],
            tools: Vec::new(),
            tool_choice: ModelToolChoice::Auto,
            schema: None,
            temperature: None,
            max_output_tokens: None,
            stop: Vec::new(),
            deadline,
        }
    }
}

/// Message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelMessage {
    /// Text of a person or a program.
    User(String),
    /// Text and tool calls of the model.
    Assistant {
        /// Text; may be empty beside calls.
        text: String,
        /// Tools that the model asked for.
        calls: Vec<ModelToolCall>,
    },
    /// Result of a tool that the model asked for.
    ToolResult {
        /// Call that it answers.
        call: ModelToolCall,
        /// Result, for the model.
        content: String,
        /// True if the tool failed.
        is_error: bool,
    },
}

/// Tool as a model is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTool {
    /// Name of letters, digits, `_` and `-`.
    pub name: String,
    /// Description of when to use the tool.
    pub description: String,
    /// JSON Schema of its input.
    pub input_schema: Value,
}

/// Whether a model has to ask for a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ModelToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must not ask for a tool.
    Never,
    /// The model has to ask for some tool.
    Required,
    /// The model has to ask for this tool.
    Named(String),
}

/// Request of a model for a tool. The model is not trusted: the arguments are not checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelToolCall {
    /// Id from the provider, or one made here where it gives none.
    pub id: String,
    /// Name of the tool, as the model says it.
    pub name: String,
    /// Arguments: an object, or a text that says why a call which the model wrote in words cannot be read.
    pub arguments: Value,
    /// Opaque text of the provider that has to come back with the call.
    pub signature: Option<String>,
}

/// Piece of an answer while it is made.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelDelta {
    /// More text.
    Text(String),
    /// A whole request for a tool.
    ToolCall(ModelToolCall),
}

/// Reason why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelStop {
    /// The model was done.
    End,
    /// The bound of tokens was reached: the text is cut short.
    MaxTokens,
    /// A text of [`ModelRequest::stop`] came.
    StopSequence,
    /// The model asks for tools.
    ToolCalls,
    /// The provider withheld the answer or a part of it.
    Refused,
    /// The provider gave a reason that is none of these, or none.
    Other,
}

impl ModelStop {
    /// The reason as one word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::MaxTokens => "max_tokens",
            Self::StopSequence => "stop_sequence",
            Self::ToolCalls => "tool_calls",
            Self::Refused => "refused",
            Self::Other => "other",
        }
    }
}

/// Tokens and money of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written.
    pub output_tokens: u64,
    /// True if the provider did not say, so that both are estimates by size.
    pub estimated: bool,
    /// Cost in millionths of a US dollar; `None` where the model's price is not configured.
    pub cost_micro_usd: Option<u64>,
}

/// A model and its provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSource {
    /// Name of the provider, as the operator configured it.
    pub provider: String,
    /// Kind of the provider; `scripted` for one that only repeats a file.
    pub provider_kind: &'static str,
    /// Model, by the name that the provider has for it.
    pub model: String,
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// A model that was asked before the one that answered, and did not.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedModel {
    /// Model that did not answer.
    pub source: ModelSource,
    /// Error that the caller would have had without another model.
    pub error: ToolError,
}

/// Whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// Model that answered.
    pub source: ModelSource,
    /// Text; may be empty beside calls.
    pub text: String,
    /// Tools that the model asks for.
    pub calls: Vec<ModelToolCall>,
    /// The text as JSON that matches the request's schema; `None` if it had none.
    pub structured: Option<Value>,
    /// Why the answer ended.
    pub stop: ModelStop,
    /// Tokens and money of the answer.
    pub usage: ModelUsage,
    /// Number of requests to the provider that answered.
    pub attempts: u32,
    /// Models that were asked before and failed; empty unless the alias allows a fallback.
    pub failed: Vec<FailedModel>,
}

/// Answer while it is made. Dropped, it cancels the request.
#[derive(Debug)]
pub struct ModelStream {
    deltas: mpsc::Receiver<ModelDelta>,
    end: oneshot::Receiver<Result<ModelAnswer, ToolError>>,
}

impl ModelStream {
    /// Makes a stream of the reading ends. The other ends see when it is dropped.
    pub fn new(
        deltas: mpsc::Receiver<ModelDelta>,
        end: oneshot::Receiver<Result<ModelAnswer, ToolError>>,
    ) -> Self {
        Self { deltas, end }
    }

    /// Waits for the next piece; `None` when the answer has ended, well or not.
    pub async fn next(&mut self) -> Option<ModelDelta> {
        self.deltas.recv().await
    }

    /// Waits for the whole answer, with the pieces that were read before.
    ///
    /// # Errors
    /// As [`Models::generate`].
    pub async fn answer(mut self) -> Result<ModelAnswer, ToolError> {
        while self.deltas.recv().await.is_some() {}
        let broken = || {
            let message = "the request ended without an answer";
            ToolError::new(hivekeep_kernel::Layer::Actor, codes::ACTOR_UNAVAILABLE, message)
                .retryable()
        };
        self.end.await.unwrap_or_else(|_| Err(broken()))
    }
}

/// Texts to embed.
#[derive(Debug, Clone)]
pub struct EmbedRequest {
    /// Session whose budget pays.
    pub session: SessionId,
    /// Like [`ModelRequest::model`], for a model that embeds.
    pub model: String,
    /// Texts, in the order of the vectors.
    pub texts: Vec<String>,
    /// End of the whole request.
    pub deadline: Instant,
}

/// Embeddings of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// Model that made the vectors. Those of different models cannot be compared.
    pub source: ModelSource,
    /// Length of each vector.
    pub dimension: usize,
    /// Vectors, one a text, all of that length and finite.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens and money of the request.
    pub usage: ModelUsage,
}

/// Use of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelUse {
    /// Text and calls of tools in answer to messages.
    Generate,
    /// Vectors of texts, by which they are compared.
    Embed,
}

/// Model that is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredModel {
    /// The model and its provider.
    pub source: ModelSource,
    /// Use of the model.
    pub usage: ModelUse,
    /// True if it runs on this host or network, for no money.
    pub local: bool,
    /// Number of requests that its provider takes at a time.
    pub parallel: usize,
}

/// Language models of the daemon.
#[async_trait]
pub trait Models: Send + Sync {
    /// Models that are configured, whether or not they answer now.
    fn configured(&self) -> Vec<ConfiguredModel>;

    /// Model that a name stands for at present, and the others that would be asked if it fails.
    ///
    /// # Errors
    /// `llm_not_configured`, `llm_unknown_backend` or `llm_unknown_model`.
    fn resolve(&self, model: &str, usage: ModelUse) -> Result<Vec<ModelSource>, ToolError>;

    /// Most that a request may come to, whichever of its models answers: the estimate that its budget is reserved
    /// by. Without a cost where a model has no price.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    fn worst_case(&self, request: &ModelRequest) -> Result<ModelUsage, ToolError>;

    /// Asks a model and gives its answer piece by piece. Returns before the provider answers.
    ///
    /// # Errors
    /// As [`Self::resolve`]; what goes wrong later is told by [`ModelStream::answer`].
    fn stream(&self, request: ModelRequest) -> Result<ModelStream, ToolError>;

    /// Asks a model for a whole answer. Dropping the future cancels the request.
    ///
    /// # Errors
    /// As [`Self::stream`], and the `llm_...` codes of the provider's failure.
    async fn generate(&self, request: ModelRequest) -> Result<ModelAnswer, ToolError> {
        self.stream(request)?.answer().await
    }

    /// Embeds texts. Dropping the future cancels the request.
    ///
    /// # Errors
    /// As [`Self::generate`].
    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings, ToolError>;
}
