//! Texts of small files of a place.

use hivekeep_kernel::{RunId, ToolError};
use hivekeep_runtime::{OnBehalfOf, ToolClient};
use serde::Deserialize;
use serde_json::json;

/// Reads a file of a place, which is named as file tools name it; `None` for one of more than so many bytes.
///
/// # Errors
/// Those of `fs.read`.
pub(crate) async fn place_text(
    tools: &ToolClient<RunId>,
    run: RunId,
    caller: &OnBehalfOf,
    (place, path): (&str, &str),
    most_bytes: usize,
) -> Result<Option<String>, ToolError> {
    #[derive(Deserialize)]
    struct Content {
        content: String,
        #[serde(default)]
        next_offset: Option<u64>,
    }
    let args = json!({ "place": place, "path": path, "limit": most_bytes });
    let Content { content, next_offset } =
        tools.call_idempotent(run, caller, "fs.read", args).await?;
    Ok(next_offset.is_none().then_some(content))
}
