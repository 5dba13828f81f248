//! Error codes of agents, and of the registry that keeps their manifests.

hivekeep_kernel::codes! {
    /// There is no such agent.
    AGENT_NOT_FOUND = "agent_not_found" {
        cause: "The id or name is wrong, the agent was deleted, or it is another user's.",
        next: "`aegis.agent.list` shows those that you can use.",
    }
}
