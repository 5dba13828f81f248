//! Outcome of a call: its result, a refusal or failure, and its events.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{PolicyResult, PublishedMode, SourceKind, ToolReason, ToolRisk};

/// A part of a result for people and models.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolContent)]
pub struct ResultContent {
    /// `text`; of another server's tool also `image` and `audio`, with base64 in `data`, and `mcp` for any
    /// other block.
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// Something that a result left behind.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolArtifact)]
pub struct ResultArtifact {
    pub uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A place of a result that is not shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolRedaction)]
pub struct ResultRedaction {
    /// JSONPath of the place.
    pub path: String,
    pub reason: ToolReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Result of a call.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub struct ToolResultPayload {
    /// The result as text, in an excerpt where it is long, and notes beside it.
    pub content: Vec<ResultContent>,
    /// The whole result, by the tool's output schema; not there where it is truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub structured: Option<Value>,
    /// How a truncated result begins, as JSON without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Where a truncated result is, whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub artifacts: Vec<ResultArtifact>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(required = false, value_type = Object)]
    pub metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub redactions: Vec<ResultRedaction>,
    pub truncated: bool,
    /// Bytes of the whole result as JSON.
    pub bytes: usize,
    /// Milliseconds from the door and back.
    pub duration_ms: u64,
}

/// A call that succeeded.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = InvokeResponse)]
pub struct ToolInvokeResponse {
    pub tool_id: String,
    /// `completed`.
    pub status: &'static str,
    pub result: ToolResultPayload,
    pub truncated: bool,
    /// Milliseconds from the door and back.
    pub duration_ms: u64,
    /// Events of this very call, in their order.
    pub events: Vec<ToolEventPayload>,
}

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
    /// Problem, and the next step.
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
    /// Problem, and the next step.
    pub error: String,
}

/// Either form of a refusal, where a route has both.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnyError)]
pub enum AnyErrorBody {
    /// Refusal or failure of a tool.
    Tool(ToolErrorBody),
    /// Refusal before any tool is looked at.
    Plain(PlainErrorBody),
}

/// Kind of event of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub enum ToolEventKind {
    /// The call was let in.
    #[serde(rename = "tool.call_started")]
    CallStarted,
    /// The call succeeded.
    #[serde(rename = "tool.call_completed")]
    CallCompleted,
    /// The call failed.
    #[serde(rename = "tool.call_failed")]
    CallFailed,
    /// The call was not allowed.
    #[serde(rename = "tool.call_denied")]
    CallDenied,
    /// The result of the call was cut.
    #[serde(rename = "tool.result_truncated")]
    ResultTruncated,
}

/// An event of a call.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolEvent)]
pub struct ToolEventPayload {
    pub kind: ToolEventKind,
    pub tool_id: String,
    pub display_title: &'static str,
    pub read_only: bool,
    pub destructive: bool,
    pub open_world: bool,
    pub risk: ToolRisk,
    pub source_kind: SourceKind,
    pub source_owner: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
    /// The session that the call was made in.
    pub session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_mode: Option<PublishedMode>,
    /// Decision of all layers together, not the registry's alone.
    pub decision: PolicyResult,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub reason_codes: Vec<ToolReason>,
    /// Milliseconds from the door and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// The caller's, or else the call's id.
    pub correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ToolErrorCode>,
    /// `sha256:` and the SHA-256 of the input in its canonical form (RFC 8785), sensitive fields left
    /// out of it.
    pub input_digest: String,
    /// Fields of `sensitive_input_fields` that were in the input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub redacted_input_fields: Vec<String>,
    /// `sha256:` and the SHA-256 of the result's JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<String>,
    pub truncated: bool,
}
