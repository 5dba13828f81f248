//! Result of a call.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ToolEventPayload, ToolReason};

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
