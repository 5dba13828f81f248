//! Classification of a provider's failures: what is repeated, what counts against the provider, what another
//! one may be asked for, and what may have cost money.

use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_ports::ModelSource;
use serde_json::Value;

use crate::codes;

/// Most characters of a provider's own text.
const TOLD_CHARS: usize = 300;

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The key is missing, or the provider does not take it.
    Auth,
    /// The provider does not take the request.
    Invalid,
    /// The provider does not have the model.
    UnknownModel,
    /// The provider limits the rate of requests.
    RateLimited,
    /// Nobody answers, or the provider failed.
    Unavailable,
    /// No answer began in time, or one paused for too long.
    TimedOut,
    /// The answer makes no sense or was cut.
    Broken,
    /// The answer is too large.
    TooLarge,
    /// The queue is full, or the turn did not come.
    Busy,
    /// The provider's kind does not support the request.
    Unsupported,
    /// The script of a scripted provider has nothing.
    Script,
    /// Nobody waits any more.
    Cancelled,
}

impl FailureKind {
    /// Whether the same request may succeed a moment later.
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::TimedOut | Self::Broken)
    }

    /// Whether the failure shows that the provider does not work.
    pub(crate) fn blames_provider(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut | Self::Broken)
    }

    /// Whether another model might do better.
    pub(crate) fn is_the_providers(self) -> bool {
        self.passes() || matches!(self, Self::Auth | Self::UnknownModel | Self::Busy)
    }

    /// Whether the provider may have processed the request, and counted it.
    pub(crate) fn may_have_cost(self) -> bool {
        matches!(self, Self::TimedOut | Self::Broken | Self::TooLarge | Self::Cancelled)
    }

    fn code(self) -> &'static ErrorCode {
        match self {
            Self::Auth => codes::LLM_AUTH_FAILED,
            Self::Invalid => codes::LLM_REQUEST_REFUSED,
            Self::UnknownModel => codes::LLM_UNKNOWN_MODEL,
            Self::RateLimited => codes::LLM_RATE_LIMITED,
            Self::Unavailable => codes::LLM_UNAVAILABLE,
            Self::TimedOut => codes::LLM_TIMED_OUT,
            Self::Broken => codes::LLM_ANSWER_BROKEN,
            Self::TooLarge => codes::LLM_ANSWER_TOO_LARGE,
            Self::Busy => codes::LLM_BUSY,
            Self::Unsupported => codes::LLM_UNSUPPORTED,
            Self::Script => codes::LLM_SCRIPT_FAILED,
            Self::Cancelled => hivekeep_kernel::codes::CANCELLED,
        }
    }
}

/// Failure of a request to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireFailure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    /// Pause that the provider asks for.
    pub(crate) retry_after: Option<Duration>,
    /// Bytes of the answer that were passed on before the failure.
    pub(crate) handed_on: usize,
    /// Number of requests that were made.
    pub(crate) attempts: u32,
    /// Attempts that may have cost something.
    pub(crate) lost: u32,
}

impl WireFailure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
            handed_on: 0,
            attempts: 0,
            lost: 0,
        }
    }

    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Broken, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(FailureKind::TooLarge, message)
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(FailureKind::Cancelled, "nobody waits for the answer")
    }

    /// Failure from a provider's error, in the body of an answer with a status or within a stream.
    pub(crate) fn told(body: &Value, status: Option<u16>) -> Self {
        // Gemini sends a list; its first entry counts.
        let body = body.get(0).unwrap_or(body);
        let error = &body["error"];
        let text = error["message"].as_str().or(error.as_str());
        let text = text.or(body["message"].as_str()).or(body["detail"].as_str());
        let words = [&error["type"], &error["code"], &error["status"]];
        let words: Vec<_> = words.iter().filter_map(|word| word.as_str()).collect();
        // A stream has the status as a number within the error, if at all.
        let status = status.or_else(|| error["code"].as_u64()?.try_into().ok());
        let kind = kind(status, &words, text.unwrap_or_default());
        let said = match (text, body.as_object().is_none_or(serde_json::Map::is_empty)) {
            (Some(text), _) => plain(text),
            (None, true) => "it gives no reason".to_owned(),
            (None, false) => plain(&body.to_string()),
        };
        Self::new(
            kind,
            match status {
                Some(status) => format!("it answered with {status}: {said}"),
                None => format!("it failed while it answered: {said}"),
            },
        )
    }

    /// Removes a secret that the provider may have repeated.
    pub(crate) fn without(mut self, secret: Option<&str>) -> Self {
        if let Some(secret) = secret.filter(|secret| !secret.is_empty()) {
            self.message = self.message.replace(secret, hivekeep_kernel::secret::REDACTED);
        }
        self
    }

    /// Typed error of a call.
    pub(crate) fn error(&self, source: &ModelSource) -> ToolError {
        if self.kind == FailureKind::Cancelled {
            return ToolError::cancelled();
        }
        let message = format!("{source} did not answer: {}", self.message);
        let mut error = ToolError::new(Layer::Actor, self.kind.code(), message)
            .next(self.kind.code().next_step)
            .detail("backend", source.provider.clone())
            .detail("model", source.model.clone())
            .detail("provider_kind", source.provider_kind)
            .detail("attempts", self.attempts);
        if self.handed_on > 0 {
            error = error.detail("received_bytes", self.handed_on);
        }
        match (self.kind.passes() || self.kind == FailureKind::Busy, self.retry_after) {
            (true, Some(pause)) => error.retry_after(pause),
            (true, None) => error.retryable(),
            (false, _) => error,
        }
    }
}

fn kind(status: Option<u16>, words: &[&str], text: &str) -> FailureKind {
    let has = |word: &str| words.iter().any(|is| is.to_ascii_lowercase().contains(word));
    match status {
        Some(401 | 403) => FailureKind::Auth,
        // Gemini's answer to a wrong key.
        Some(400) if text.contains("API key") => FailureKind::Auth,
        Some(404) => FailureKind::UnknownModel,
        Some(408 | 504) => FailureKind::TimedOut,
        Some(429) => FailureKind::RateLimited,
        Some(400..=499) => FailureKind::Invalid,
        Some(500..=599) => FailureKind::Unavailable,
        _ if has("rate_limit") || has("resource_exhausted") => FailureKind::RateLimited,
        _ if has("authentication") || has("permission") => FailureKind::Auth,
        _ if has("invalid") => FailureKind::Invalid,
        _ => FailureKind::Unavailable,
    }
}

/// A provider's text for people, bounded, on one line.
pub(crate) fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(TOLD_CHARS).collect::<String>().trim().to_owned()
}
