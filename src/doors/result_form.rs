//! Form of a result: JSON, or blocks of content in MCP's form, as those of images and of other servers.

use hivekeep_kernel::ToolSpec;
use serde_json::{Value, json};

use super::DaemonServices;

/// Maker of a result's blocks, see [`ToolSpec::content`].
pub(super) type ContentOf = fn(&Value) -> Option<Vec<Value>>;

/// See the module.
#[derive(Debug)]
pub(super) enum ResultForm {
    /// A value, for clients to read as text.
    Json(Value),
    /// A whole result of MCP: `content`, and `structuredContent` where there is one.
    Blocks(Value),
}

impl ResultForm {
    /// The form of a result; what another server answers has its own already.
    pub(super) fn of(value: Value, from_source: bool, content: ContentOf) -> Self {
        if from_source {
            return Self::Blocks(value);
        }
        match content(&value) {
            Some(blocks) => Self::Blocks(
                json!({ "content": blocks, "structuredContent": value, "isError": false }),
            ),
            None => Self::Json(value),
        }
    }
}

/// Maker of the blocks of a tool's results.
pub(super) fn content_of(core: &DaemonServices, tool: &str) -> ContentOf {
    let spec: Option<&ToolSpec> = core.catalogue().find(tool).map(|entry| entry.spec);
    spec.map_or(hivekeep_kernel::tool::plain_result, |spec| spec.content)
}
