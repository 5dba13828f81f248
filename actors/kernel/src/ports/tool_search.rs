//! Search port: ranked full-text search over all tools.

/// Index of the tools, for whoever lists them.
pub trait ToolSearch: Send + Sync {
    /// Declared names of the tools that a query finds, the best first. All of them for a blank query,
    /// in the order of the catalogue. What a caller may know of is for the caller's door to say.
    fn search(&self, query: &str) -> Vec<&'static str>;
}
