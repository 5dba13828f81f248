//! Error codes of discovery.

hivekeep_kernel::codes! {
    /// The session has no such tool.
    TOOL_NOT_FOUND = "tool_not_found" {
        cause: "The name is wrong, or the session may not call the tool.",
        next: "Use one of `details.nearest`, or look for it with `aegis.tools.search`.",
    }
    /// The session has no such toolset.
    TOOLSET_NOT_FOUND = "toolset_not_found" {
        cause: "The name is wrong, or the session may not call any tool of the family.",
        next: "Use one of `details.toolsets`.",
    }
}
