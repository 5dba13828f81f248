//! Port of the catalogue: all tools as MCP lists them. Boot offers it before any family is mounted.

use hivekeep_kernel::ToolInfo;
use serde_json::Value;

/// One tool.
#[derive(Debug, Clone)]
pub struct CataloguedTool {
    /// Declaration.
    pub info: &'static ToolInfo,
    /// MCP tool object by the declared name, with both schemas.
    pub tool: Value,
}

/// All tools, in the order of their declaration. Which of them a caller may know of says the view of
/// its call.
#[derive(Debug, Clone, Default)]
pub struct ToolCatalogue(pub Vec<CataloguedTool>);
