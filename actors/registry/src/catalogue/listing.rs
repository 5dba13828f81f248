//! Tools as MCP describes them.

use hivekeep_kernel::{Effect, ToolSpec};
use serde_json::{Value, json};

use super::{Catalogue, ToolView};

/// The MCP tool objects of a view, in the order of declaration. One source for
/// `tools/list`, `hivekeep tools --json` and the contract check.
pub fn mcp_listing(catalogue: &Catalogue, view: &ToolView) -> Vec<Value> {
    catalogue
        .visible(view)
        .map(|entry| {
            let spec = &entry.info.spec;
            json!({
                "name": view.name(entry.info),
                "title": spec.title,
                "description": entry.description,
                "inputSchema": entry.input_schema,
                "outputSchema": entry.output_schema,
                "annotations": annotations(spec),
            })
        })
        .collect()
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
