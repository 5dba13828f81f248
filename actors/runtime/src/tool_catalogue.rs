//! Port of the catalogue: all tools as MCP lists them. Boot offers it before any family is mounted.

use std::sync::Arc;

use hivekeep_kernel::ToolSpec;
use serde_json::Value;

/// A tool of the catalogue.
#[derive(Debug, Clone)]
pub struct CataloguedTool {
    /// Declaration.
    pub spec: &'static ToolSpec,
    /// Name of the source that it comes from; `None` for the daemon's own.
    pub server: Option<String>,
    /// MCP tool object by the declared name, with both schemas.
    pub tool: Value,
}

/// All tools. The view of a call says which of them its caller may know of.
pub trait ToolCatalogue: Send + Sync {
    /// The tools as they are now: the daemon's own in the order of their declaration, then those of
    /// sources. The same list until they change.
    fn tools(&self) -> Arc<Vec<CataloguedTool>>;
}
