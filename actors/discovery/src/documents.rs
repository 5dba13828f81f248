//! Document port of the tools: each in full, as `tool_describe` tells it.

use hivekeep_kernel::{ToolError, codes::INVALID_INPUT};
use hivekeep_runtime::documents::{DocumentBody, Documents, Refusal, Template};
use serde_json::{Map, Value};

use crate::codes;

/// Text before the name of a tool.
const ROOT: &str = "hivekeep://tools/";

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
