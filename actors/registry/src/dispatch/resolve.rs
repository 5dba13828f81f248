//! Resolution of a name to a tool.
//!
//! Names are looked up in the whole catalogue. Whether the caller may use what
//! was found is for the policies to say, so that a refusal can name its reason;
//! only suggestions are taken from what the caller is shown.

use std::sync::Arc;

use hivekeep_kernel::{Layer, ToolError};

use crate::{Catalogue, ToolEntry, ToolView, codes};

pub(super) fn pass(
    catalogue: &Catalogue,
    view: &ToolView,
    name: &str,
) -> Result<Arc<ToolEntry>, ToolError> {
    if let Some(entry) = catalogue.find(name) {
        return Ok(entry.clone());
    }
    // A name from outside may be of any length.
    let shown: String = name.chars().take(80).collect();
    let nearest = catalogue.nearest(&shown, view);
    let step = match nearest.as_slice() {
        [] => "list the tools".to_owned(),
        [one] => format!("did you mean `{one}`?"),
        many => format!("did you mean one of `{}`?", many.join("`, `")),
    };
    let message = format!("there is no tool `{shown}`");
    Err(ToolError::new(Layer::Resolve, codes::UNKNOWN_TOOL, message)
        .next(step)
        .detail("nearest", nearest))
}
