//! Descriptor of a tool.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What serves a tool.
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

/// What a call can do to the world.
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

/// Who is shown a tool.
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

/// What serves a tool, and by which name it knows it.
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

/// What a tool is.
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
