//! Error codes of conversations.

hivekeep_kernel::codes! {
    /// There is no such mode of a conversation.
    UNKNOWN_MODE = "unknown_mode" {
        cause: "The name is wrong; modes are those of `policy.conversations`.",
        next: "Use one of `details.modes`.",
    }
}
