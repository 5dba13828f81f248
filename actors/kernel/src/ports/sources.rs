//! Publication of tools that come and go: those of sources outside of the daemon, as MCP servers are.

use std::{
    fmt::{self, Debug, Display},
    sync::Arc,
};

use serde_json::Value;

use crate::ToolSpec;

/// Origin of tools that are not the daemon's own.
pub trait ForeignSource: Debug + Send + Sync {
    /// Name of the server, as the operator configured it.
    fn server(&self) -> &str;
    /// State, as it is now.
    fn state(&self) -> SourceState;
}

/// Readiness of a source for calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// Connected.
    Ready,
    /// Being connected for the first time, or again.
    Connecting,
    /// Not there, for this reason.
    Unreachable(String),
    /// The source wants a credential, and none is configured.
    AuthRequired,
    /// The source takes the configured credential for an expired one.
    AuthExpired,
    /// The source does not accept the configured credential.
    AuthInvalid,
}

impl SourceState {
    /// The state as one word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Connecting => "connecting",
            Self::Unreachable(_) => "unreachable",
            Self::AuthRequired => "auth_required",
            Self::AuthExpired => "auth_expired",
            Self::AuthInvalid => "auth_invalid",
        }
    }

    /// Why the source is not ready, for people.
    pub fn why(&self) -> Option<String> {
        (*self != Self::Ready).then(|| self.to_string())
    }
}

impl Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "it is ready",
            Self::Connecting => "it is being connected",
            Self::Unreachable(why) => why,
            Self::AuthRequired => "it wants a credential, and none is configured",
            Self::AuthExpired => "it takes the configured credential for one that is over",
            Self::AuthInvalid => "it does not take the configured credential",
        })
    }
}

/// Tool of a source.
#[derive(Debug, Clone)]
pub struct SourceTool {
    /// Declaration. Its result is what the source answers, whole.
    pub spec: &'static ToolSpec,
    /// Name that the source has for it.
    pub raw_name: String,
    /// Text for models, as the source has it.
    pub description: String,
    /// JSON Schema 2020-12 of the input, an object at the root.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of the structured part of a result.
    pub output_schema: Option<Value>,
    /// Another tool of the source that would have the same name; then neither is called.
    pub conflict: Option<String>,
}

/// Catalogue that takes the tools of sources.
pub trait ToolPublisher: Send + Sync {
    /// Replaces what a source published before, for listings and for calls that begin from now on.
    /// `source` is the same value each time.
    fn publish(&self, source: Arc<dyn ForeignSource>, tools: Vec<SourceTool>);
}
