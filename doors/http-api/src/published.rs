//! The published vocabulary of the tool registry: names, fields and closed lists of values, as its clients
//! know them. Additions of this daemon are marked as such.
// The lists are whole: what this daemon has no cause for is in its schemas all the same.
#![allow(dead_code)]

mod result;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use result::{
    AnyErrorBody, PlainErrorBody, ResultArtifact, ResultContent, ResultRedaction, ToolErrorBody,
    ToolErrorCode, ToolErrorPayload, ToolEventKind, ToolEventPayload, ToolInvokeResponse,
    ToolResultPayload,
};

/// A tool: what it is, whether it can be called at all, and whether this caller may.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Tool)]
pub struct ToolPayload {
    pub descriptor: ToolDescriptor,
    pub availability: ToolAvailability,
    pub decision: ToolDecision,
}

/// Tools, by id or by how well they suit a query.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolList)]
pub struct ToolsBody {
    pub tools: Vec<ToolPayload>,
}

/// Response with a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolResponse)]
pub struct ToolBody {
    pub tool: ToolPayload,
}

/// Kind of the server behind a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ToolBackendKind)]
pub enum BackendKind {
    /// An actor of this daemon. An addition, in place of the published `native_go`, `extension_host` and
    /// `bridge`.
    Native,
    /// The guest of a workspace. An addition.
    Guest,
    /// Another MCP server.
    Mcp,
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ToolSourceKind)]
pub enum SourceKind {
    /// The daemon itself.
    Builtin,
    /// Another MCP server.
    Mcp,
    /// An extension.
    Extension,
    /// Reserved.
    Dynamic,
}

/// Risk of a call, by its effect on the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolRisk {
    /// Changes nothing, and asks nobody outside.
    Read,
    /// Changes something that can be changed back.
    Mutating,
    /// Reaches beyond the daemon and its guests.
    OpenWorld,
    /// May destroy what was there.
    Destructive,
}

/// Audience that a tool is shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolVisibility {
    /// Nobody.
    Internal,
    /// Operators.
    Operator,
    /// Sessions.
    Session,
    /// Sessions, and the models in them.
    Model,
}

/// Backend of a tool, and the name that it has for the tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolBackend {
    pub kind: BackendKind,
    /// Name that the tool is declared by, with its dots.
    pub native_name: &'static str,
    /// Name of the server in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<String>,
    /// Name that the server has for the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_tool: Option<String>,
}

/// Where a tool comes from.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolSource {
    pub kind: SourceKind,
    /// `hivekeep`, or the name of the server.
    pub owner: &'static str,
    /// Name of the server in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_server_name: Option<String>,
    /// Name that the server has for the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_tool_name: Option<String>,
}

/// Published description of a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolDescriptor {
    /// Id: the tool's name with underscores.
    #[schema(example = "workspace_list")]
    pub tool_id: String,
    pub backend: ToolBackend,
    pub display_title: &'static str,
    pub description: String,
    /// JSON Schema 2020-12 of the input.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of a success; of another server's tool that of its structured part, if it has one.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub output_schema: Value,
    pub source: ToolSource,
    pub visibility: ToolVisibility,
    pub risk: ToolRisk,
    pub read_only: bool,
    pub destructive: bool,
    pub open_world: bool,
    pub requires_interaction: bool,
    /// True when calls for one target may run side by side.
    pub concurrency_safe: bool,
    /// Largest result in bytes.
    pub max_result_bytes: usize,
    /// Toolsets that it is in.
    pub toolsets: Vec<String>,
}

/// Whether a tool could be called by anybody.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolAvailability {
    pub registered: bool,
    pub enabled: bool,
    pub available: bool,
    pub authorized: bool,
    pub executable: bool,
    pub conflicted: bool,
    pub reason_codes: Vec<ToolReason>,
}

/// Result of one part of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyResult {
    /// Nothing against it.
    Allowed,
    /// No.
    Denied,
    /// Only with an approval.
    ApprovalRequired,
    /// Switched off.
    Disabled,
    /// Allowed for where it comes from.
    Trusted,
    /// Nothing is bound.
    Unrestricted,
    /// Nobody serves it now.
    Unavailable,
    /// Two tools have its id.
    Conflicted,
}

/// Default ruling of the system, where no rule says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SystemPermissionMode)]
pub enum PublishedMode {
    /// Nothing. It does deny.
    DenyAll,
    /// Calls that only read; an approval for all else.
    ApproveReads,
    /// Everything.
    ApproveAll,
}

/// Ruling of one layer of the decision. An addition.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolVerdict {
    /// The layer, in the order in which they are asked.
    pub layer: String,
    /// `allow`, `deny`, `ask` or `unavailable`.
    pub ruling: String,
    /// The reason; of a denial also what would lift it.
    pub why: String,
    /// The rule, grant or context that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Whether this caller may call a tool, and which part of the decision says so. It is made again at
/// each call.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ToolDecision {
    pub visible_to_operator: bool,
    pub visible_to_session: bool,
    pub callable: bool,
    pub approval_required: bool,
    pub system_permission_mode: PublishedMode,
    pub registry_policy_result: PolicyResult,
    pub source_policy_result: PolicyResult,
    pub agent_policy_result: PolicyResult,
    pub session_policy_result: PolicyResult,
    pub availability_result: PolicyResult,
    pub hook_result: PolicyResult,
    pub reason_codes: Vec<ToolReason>,
    /// Rulings of all layers, where one tool is asked for. An addition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub verdicts: Vec<ToolVerdict>,
}

/// Reason of a refusal or failure, for programs: the published list and no other value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReasonCode)]
pub enum ToolReason {
    IdEmpty,
    IdEmptySegment,
    IdInvalidFormat,
    ReservedConflict,
    ReservedNamespace,
    IdTooLong,
    DependencyMissing,
    BackendUnhealthy,
    BackendNotExecutable,
    ExtensionInactive,
    ExtensionRuntimeMismatch,
    ExtensionCapabilityMissing,
    RuntimeDescriptorMissing,
    RuntimeDescriptorMismatch,
    HandlerMissing,
    McpUnreachable,
    McpAuthUnconfigured,
    McpAuthRequired,
    McpAuthExpired,
    McpAuthInvalid,
    McpAuthRefreshFailed,
    SourceDisabled,
    PolicyDenied,
    VisibilityDenied,
    ApprovalRequired,
    ApprovalUnreachable,
    ApprovalTimedOut,
    ApprovalCanceled,
    ApprovalTokenMissing,
    ApprovalTokenExpired,
    ApprovalTokenMismatch,
    ApprovalTokenReplayed,
    SessionDenied,
    HookDenied,
    SchemaInvalid,
    ConflictedId,
    ConflictedSanitizedName,
    ResultBudgetExceeded,
    CallCanceled,
    CallTimedOut,
    SecretMetadata,
    ToolsetUnknown,
    ToolsetCycle,
    ToolUnknown,
}
