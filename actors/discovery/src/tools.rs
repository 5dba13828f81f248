//! Tool declarations of discovery, and the document port of the tools: each in full, as `tool_describe`
//! tells it.

use hivekeep_kernel::{ToolError, codes::INVALID_INPUT, tools};
use hivekeep_runtime::documents::{DocumentBody, Documents, Refusal, Template};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{codes, service::Discovery};

/// Text before the name of a tool.
const ROOT: &str = "hivekeep://tools/";

/// List the tools that you may call, each with the first sentence of its description, and the toolsets
/// they are in. To find one for a task use aegis.tools.search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolsList {
    /// Only tools of this toolset.
    #[schemars(length(max = 100))]
    pub(crate) toolset: Option<String>,
    /// Most tools to show, 1 to 500.
    #[serde(default = "whole")]
    #[schemars(range(min = 1, max = 500))]
    pub(crate) limit: usize,
    /// Tools to pass over.
    #[serde(default)]
    pub(crate) offset: usize,
}

fn whole() -> usize {
    200
}

/// Tools of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsListed {
    /// Name of the tool.
    pub(crate) tool: &'static str,
    /// Tools in the order of the catalogue, by toolset.
    pub(crate) tools: Vec<FoundTool>,
    /// How many there are in all.
    pub(crate) total: usize,
    /// Toolsets that may be called.
    pub(crate) toolsets: Vec<ToolsetRow>,
}

/// Find tools for a task among all that you may call, also those that are not listed to you: say what you
/// want to do in a few words, or a part of a name. The best come first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolsSearch {
    /// Words, as `clone a repository`, or a part of a name, as `fs.`. All tools without it.
    #[serde(default)]
    #[schemars(length(max = 500))]
    pub(crate) query: String,
    /// Only tools of this toolset.
    #[schemars(length(max = 100))]
    pub(crate) toolset: Option<String>,
    /// Most tools to show, 1 to 100.
    #[serde(default = "screen")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) limit: usize,
}

fn screen() -> usize {
    20
}

/// Tools that a query found.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsFound {
    /// Name of the tool.
    pub(crate) tool: &'static str,
    /// Query.
    pub(crate) query: String,
    /// Tools, the best first.
    pub(crate) tools: Vec<FoundTool>,
    /// How many were found in all.
    pub(crate) total: usize,
}

/// A tool in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FoundTool {
    /// Name, as it is listed to the session.
    pub(crate) name: String,
    /// Purpose of the tool; in a list of all tools the first sentence.
    pub(crate) description: String,
    /// Origin: `builtin`.
    pub(crate) source: &'static str,
    /// True if it changes nothing, so that a call needs no judge.
    pub(crate) skip_judge: bool,
    /// Toolset that it is in.
    pub(crate) toolset: &'static str,
    /// True if it is in the session's listing. Others can be called all the same.
    pub(crate) listed: bool,
}

/// A toolset.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsetRow {
    /// Name.
    pub(crate) name: &'static str,
    /// Its tools that may be called.
    pub(crate) tools: usize,
    /// Those of them that are listed.
    pub(crate) listed: usize,
}

/// Describe one tool in full: what it does, its input schema and, if asked, that of its result. Use it
/// before you call a tool that is not listed to you.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolDescribe {
    /// Name of the tool.
    #[schemars(length(min = 1, max = 100))]
    pub(crate) name: String,
    /// Show the schema of its result too.
    #[serde(default)]
    pub(crate) output: bool,
}

/// A tool in full.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolDescribed {
    /// Name, as it is listed to the session.
    pub(crate) name: String,
    /// Title.
    pub(crate) title: &'static str,
    /// Purpose of the tool, and when to use it.
    pub(crate) description: String,
    /// Toolset that it is in.
    pub(crate) toolset: &'static str,
    /// True if it is in the session's listing.
    pub(crate) listed: bool,
    /// JSON Schema of its input.
    pub(crate) input_schema: Value,
    /// JSON Schema of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<Value>,
    /// MCP's hints.
    pub(crate) annotations: Value,
}

/// Load whole toolsets into your listing of tools, for as long as the session lives. Your client is told
/// that the list has changed. Not needed to call a single tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolsetLoad {
    /// Names of toolsets, as aegis.tools.search shows them.
    #[schemars(length(min = 1, max = 50))]
    pub(crate) toolsets: Vec<String>,
}

/// Toolsets that are listed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsetLoaded {
    /// Toolsets that were not loaded before.
    pub(crate) loaded: Vec<&'static str>,
    /// Tools that are listed now and were not before.
    pub(crate) added: Vec<String>,
    /// True if the listing has changed; its client is told where the door can tell it.
    pub(crate) list_changed: bool,
    /// Tools that are listed now.
    pub(crate) listed: usize,
}

tools! { pub(crate) FAMILY: "tools" for service Discovery, singleton discovery;
    tools_list: ToolsList => ToolsListed = Discovery::list {
        name: "aegis.tools.list", title: "List tools", effect: Read,
    };
    tools_search: ToolsSearch => ToolsFound = Discovery::search {
        name: "aegis.tools.search", title: "Search tools", effect: Read,
    };
    tool_describe: ToolDescribe => ToolDescribed = Discovery::describe {
        title: "Describe a tool", effect: Read,
    };
    toolset_load: ToolsetLoad => ToolsetLoaded = Discovery::load {
        title: "Load toolsets", effect: Idempotent,
    };
}

/// Descriptions of tools.
pub(crate) struct ToolDocuments;

impl Documents for ToolDocuments {
    fn tool(&self) -> &'static str {
        "tool_describe"
    }

    fn enabled(&self) -> bool {
        true
    }

    fn template(&self) -> Template {
        Template {
            uri: "hivekeep://tools/{name}",
            name: "tool",
            title: "Tools in full",
            description: "A tool with its description and its schemas, as JSON",
            mime_type: "application/json",
            variables: &[("name", "tool")],
        }
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        let name = uri.strip_prefix(ROOT).filter(|name| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        });
        let name = name.ok_or_else(|| ToolError::invalid(format!("`{uri:.200}` names no tool")))?;
        Ok(Map::from_iter([("name".to_owned(), name.into()), ("output".to_owned(), true.into())]))
    }

    fn body(&self, _: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        serde_json::to_string_pretty(&answer)
            .map(DocumentBody::Text)
            .map_err(|error| ToolError::internal(error.to_string()))
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        match error {
            error if error.is(codes::TOOL_NOT_FOUND) => Refusal::Missing,
            error if error.is(INVALID_INPUT) => Refusal::Invalid,
            _ => Refusal::Failed,
        }
    }
}
