//! Tools as MCP describes them.

use hivekeep_kernel::{Effect, ToolSpec};
use serde_json::{Value, json};

use super::{
    Catalogue, ToolEntry, ToolView,
    slim::{joined, slim},
};

/// The MCP tool objects of a view, in the order of declaration. One source for
/// `tools/list`, `hivekeep tools --json` and the contract check.
pub fn mcp_listing(catalogue: &Catalogue, view: &ToolView) -> Vec<Value> {
    catalogue.visible(view).map(|entry| mcp_tool(entry, view)).collect()
}

/// A tool as MCP lists it. Without its output schema unless the view has output schemas: a result
/// is structured either way, and a client checks it only against a schema that it was given.
pub fn mcp_tool(entry: &ToolEntry, view: &ToolView) -> Value {
    let spec = entry.spec;
    let mut tool = json!({
        "name": view.name(entry.spec),
        "title": spec.title,
        "description": joined(&entry.description),
        "inputSchema": slim(&entry.input_schema),
        "annotations": annotations(spec),
    });
    if let Some(schema) = entry.output_schema.as_ref().filter(|_| view.output_schemas) {
        tool["outputSchema"] = slim(schema);
    }
    tool
}

fn annotations(spec: &ToolSpec) -> Value {
    json!({
        "title": spec.title,
        "readOnlyHint": spec.effect == Effect::Read,
        "destructiveHint": spec.effect == Effect::Destroy,
        "idempotentHint": matches!(spec.effect, Effect::Read | Effect::Idempotent),
        "openWorldHint": spec.open_world,
    })
}
