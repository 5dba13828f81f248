//! Error codes of chats, builds and pages.

hivekeep_kernel::codes! {
    /// No agent answers chats on this daemon.
    ASSISTANT_NOT_CONFIGURED = "assistant_not_configured" {
        cause: "No family of this daemon offers chats: agents are left out of it, or are not set up to talk.",
        next: "Ask the operator; `aegis.task.execute` runs an agent that does not wait for messages.",
    }
    /// There is no such chat.
    CHAT_NOT_FOUND = "chat_not_found" {
        cause: "The id is wrong, the chat was removed or is forgotten by age, or it is another user's.",
        next: "`ide_session_list` shows yours.",
    }
    /// There is no such build.
    BUILD_NOT_FOUND = "build_not_found" {
        cause: "The id is wrong, the process is not a build by `assistant.builds`, or is not kept any more: the last hundred of each workspace that ended are.",
        next: "`ide_build_list` shows the builds, `process_list` all processes.",
    }
    /// The person has no page open that could show it.
    NO_PAGE_OPEN = "no_page_open" {
        cause: "No client of the hub with the session's credential follows the channel `pages`, or it does not read.",
        next: "Ask the person to open the dashboard, then repeat the call.",
    }
}
