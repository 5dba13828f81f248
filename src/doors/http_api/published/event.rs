//! Events of one call.

use serde::Serialize;
use utoipa::ToSchema;

use super::{PolicyResult, PublishedMode, SourceKind, ToolErrorCode, ToolReason, ToolRisk};

/// What happened to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub enum ToolEventKind {
    /// It was let in.
    #[serde(rename = "tool.call_started")]
    CallStarted,
    /// It succeeded.
    #[serde(rename = "tool.call_completed")]
    CallCompleted,
    /// It failed.
    #[serde(rename = "tool.call_failed")]
    CallFailed,
    /// It was not allowed.
    #[serde(rename = "tool.call_denied")]
    CallDenied,
    /// Its result was cut.
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
    /// What all layers together decided, not the registry's alone.
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
