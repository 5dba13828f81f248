//! Bodies of refusals and failures.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ToolReason;

/// Kind of a refusal or failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the published codes begin so")]
pub enum ToolErrorCode {
    /// The request, or the tool's input, is not valid.
    ToolInvalidInput,
    /// There is no such tool.
    ToolNotFound,
    /// The call is not allowed.
    ToolDenied,
    /// The call needs an approval.
    ToolApprovalRequired,
    /// The call is against another one, or against the state of things.
    ToolConflict,
    /// The tool cannot be called now.
    ToolUnavailable,
    /// The result is larger than it may be.
    ToolResultTooLarge,
    /// The tool failed.
    ToolBackendFailed,
    /// The call was cancelled.
    ToolCanceled,
    /// The call took too long.
    ToolTimedOut,
}

/// A refusal or failure of a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolErrorPayload {
    pub code: ToolErrorCode,
    /// What is wrong, and what to do next.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub reason_codes: Vec<ToolReason>,
    /// The layer that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<&'static str>,
    /// Facts to act on. `code` is the daemon's own code, which `hivekeep errors` explains; `next_step`,
    /// `retryable` and `retry_after_ms` say what to do.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(required = false, value_type = Object)]
    pub details: Map<String, Value>,
}

/// A refusal or failure of a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolError)]
pub struct ToolErrorBody {
    pub error: ToolErrorPayload,
}

/// A refusal before any tool is looked at.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PlainError)]
pub struct PlainErrorBody {
    /// What is wrong, and what to do next.
    pub error: String,
}

/// Either form of a refusal, where a route has both.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnyError)]
pub enum AnyErrorBody {
    /// Of a tool.
    Tool(ToolErrorBody),
    /// Before any tool is looked at.
    Plain(PlainErrorBody),
}
