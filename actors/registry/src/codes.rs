//! Error codes of sessions and of the dispatch of calls.

pub(crate) use hivekeep_kernel::codes::*;
pub(crate) use hivekeep_policy::codes::{APPROVAL_REQUIRED, DENIED};

hivekeep_kernel::codes! {
    /// There is no such tool.
    UNKNOWN_TOOL = "unknown_tool" {
        cause: "The name is wrong, or the tool is not in the session's toolsets.",
        next: "Use one of `details.nearest`, or list the tools.",
    }
    /// There is no such toolset.
    UNKNOWN_TOOLSET = "unknown_toolset" {
        cause: "The name is wrong; toolsets are called like the families of tools.",
        next: "Use one of `details.toolsets`.",
    }
    /// Calls cannot be written to the audit log, so none is made.
    AUDIT_UNAVAILABLE = "audit_unavailable" {
        cause: "The disk of the state or run folder is full or fails.",
        next: "Make room, or look at the daemon's log; calls go on by themselves then.",
    }
    /// The call takes more tokens than its bucket ever holds.
    RATE_IMPOSSIBLE = "rate_impossible" {
        cause: "One call asks for very many things at once.",
        next: "Split it into calls for at most `details.burst`.",
    }
    /// The user has made as many calls of the kind as its tier allows for now.
    TIER_LIMIT_REACHED = "tier_limit_reached" {
        cause: "`registry.tiers` limits the calls in a window of time or at once; `details` names tier and limit.",
        next: "Wait until `details.opens_at`, or have the operator give the user another tier.",
    }
    /// The result is larger than the tool may answer.
    RESULT_TOO_LARGE = "result_too_large" {
        cause: "The call asks for too much at once.",
        next: "Read all of it from `details.artifact`, or narrow it by the fields in `details.narrow_by`; what the call was to do is done.",
    }
    /// The session, or all sessions of its user, would hold more than they may.
    QUOTA_EXCEEDED = "quota_exceeded" {
        cause: "`registry.quota` limits what workspaces of a session may take; `details` has the figures.",
        next: "Destroy a workspace, ask for less, or raise the quota.",
    }
    /// All workspaces together would take more than the host gives.
    HOST_FULL = "host_full" {
        cause: "`registry.host` limits what all sessions hold; `details.holders` names those with most of it.",
        next: "Destroy workspaces, ask for less, or raise `registry.host`.",
    }
    /// The session has no deferred call of this id.
    DEFERRED_CALL_UNKNOWN = "deferred_call_unknown" {
        cause: "The id is wrong or another session's, or what was kept of the call has expired.",
        next: "Make the call again if its result is still wanted.",
    }
    /// There are as many sessions as there may be.
    TOO_MANY_SESSIONS = "too_many_sessions" {
        cause: "Clients leave sessions open, or the limit is small.",
        next: "End one (`hivekeep sessions`), or raise `registry.sessions.max_sessions`; for agents and runs `max_children`.",
    }
    /// There are too many sessions above the one that is to be opened.
    CHILD_TOO_DEEP = "child_too_deep" {
        cause: "Agents begin agents that begin agents; `details.max_depth` sessions are above one at most.",
        next: "Have it begun by a session further up.",
    }
    /// There is no such session.
    SESSION_UNKNOWN = "session_unknown" {
        cause: "The id is wrong, or the session ended long ago.",
        next: "Open a session first.",
    }
}
