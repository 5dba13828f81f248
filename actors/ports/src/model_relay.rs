//! Model relay port: requests of programs that speak a provider's own API, passed on to the provider of that kind byte
//! for byte.
//!
//! The body is the program's and is not trusted; the key, the address and the budget are the daemon's.

use async_trait::async_trait;
use bytes::Bytes;
use hivekeep_kernel::{SessionId, ToolError};
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};

use crate::{ModelSource, ModelUsage};

/// Number of pieces of an answer that wait for a slow reader; then the provider's answer is not read on.
pub const RELAY_PIECES_AHEAD: usize = 16;

/// API that a program speaks to its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelApi {
    /// Chat completions of OpenAI.
    Chat,
    /// Responses of OpenAI.
    Responses,
    /// Messages of Anthropic.
    Messages,
    /// Contents of Google's Gemini.
    Gemini,
}

impl ModelApi {
    /// The API as one word, for configurations.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Gemini => "gemini",
        }
    }
}

/// Request of a program.
#[derive(Debug, Clone)]
pub struct RelayRequest {
    /// Session whose budget pays.
    pub session: SessionId,
    /// API that the body is written for.
    pub api: ModelApi,
    /// Name of the provider, as the operator configured it.
    pub provider: String,
    /// Model, by the name that the provider has for it: the one that the body asks for.
    pub model: String,
    /// Whether the answer is a stream of events.
    pub stream: bool,
    /// Most tokens of the answer, as the body bounds it.
    pub max_tokens: Option<u64>,
    /// Headers of the program that belong to its API, by lower-case names.
    pub headers: Vec<(&'static str, String)>,
    /// Body: JSON, as the program wrote it.
    pub body: Bytes,
    /// End of the whole request, waits included.
    pub deadline: Instant,
}

/// Beginning or piece of an answer, as the provider sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayPiece {
    /// Status and type of the answer; comes first.
    Head {
        /// Status of HTTP.
        status: u16,
        /// Value of `content-type`.
        content_type: String,
        /// `retry-after`, in seconds.
        retry_after: Option<u64>,
    },
    /// Bytes of the body.
    Body {
        /// The bytes.
        bytes: Bytes,
        /// True if the answer's own end is in these bytes or in bytes before them.
        ends: bool,
    },
}

/// How an answer ended that came to its end in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayEnd {
    /// True if the answer is whole: a success that came up to the end which its API gives it. False for a refusal of
    /// the provider.
    pub whole: bool,
    /// Tokens and money.
    pub usage: ModelUsage,
}

/// Requests of programs to providers.
#[async_trait]
pub trait ModelRelay: Send + Sync {
    /// Whether a provider speaks an API.
    fn speaks(&self, provider: &str, api: ModelApi) -> bool;

    /// Most that a request may come to: the estimate that its budget is reserved by. Without a cost where the model has
    /// no price.
    ///
    /// # Errors
    /// As [`Self::relay`], of what is known before the provider is asked.
    fn worst_case(&self, request: &RelayRequest) -> Result<ModelUsage, ToolError>;

    /// Asks a provider once, and gives its answer piece by piece, a refusal too. What it costs is reserved before and
    /// settled afterwards, whether or not anybody waits. Nobody reading the pieces cancels the request.
    ///
    /// # Errors
    /// `llm_unknown_model`; `llm_unsupported` for a provider that does not speak the API; `llm_budget_exceeded`,
    /// `llm_price_unknown`; `invalid_input` for an answer longer than the model's may be; the `llm_...` codes of a
    /// failure, which may come after pieces: the answer is cut then.
    async fn relay(
        &self,
        request: RelayRequest,
        pieces: mpsc::Sender<RelayPiece>,
    ) -> Result<(ModelSource, RelayEnd), ToolError>;
}
