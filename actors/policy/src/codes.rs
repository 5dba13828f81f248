//! Error codes of policy and approvals.

hivekeep_kernel::codes! {
    /// A policy does not allow the call.
    DENIED = "denied" {
        cause: "A rule, a list, a context or the tool's tier speaks against it.",
        next: "`hivekeep policy explain TOOL` shows which layer decides and what would change it.",
    }
    /// The call needs the approval of a person.
    APPROVAL_REQUIRED = "approval_required" {
        cause: "A layer of the policy asks, and the caller does not wait for a person.",
        next: "Have a person approve it (`hivekeep approvals`), then repeat the same call.",
    }
    /// A person denied the call.
    APPROVAL_DENIED = "approval_denied" {
        cause: "Whoever was asked said no; `details.why` has the reason that was given.",
        next: "Do without it, or ask the person.",
    }
    /// Nobody approved the call in time.
    APPROVAL_TIMED_OUT = "approval_timed_out" {
        cause: "No person answered within `policy.approvals.timeout_secs`; that is a denial.",
        next: "Repeat the call when somebody looks at `hivekeep approvals`.",
    }
    /// Too many calls wait for approvals, or too many questions for replies.
    APPROVALS_FULL = "approvals_full" {
        cause: "`policy.approvals.max_pending` of them wait for a person already, or half of those are the caller's.",
        next: "Decide some of `hivekeep approvals` (`deny --of USER` ends all of a user's), then repeat the call.",
    }
    /// The approval token is for something else, or there is no such token.
    APPROVAL_TOKEN_MISMATCH = "approval_token_mismatch" {
        cause: "Tool, session, agent, workspace and input have to be those that the token was made for.",
        next: "Have a token made for exactly this call.",
    }
    /// The approval token is too old.
    APPROVAL_TOKEN_EXPIRED = "approval_token_expired" {
        cause: "A token is good for `policy.approvals.timeout_secs`.",
        next: "Have a new token made.",
    }
    /// The approval token was used before.
    APPROVAL_TOKEN_REPLAYED = "approval_token_replayed" {
        cause: "A token is good for one call, whatever became of that.",
        next: "Have a new token made.",
    }
    /// There is no such approval, or it is decided.
    APPROVAL_NOT_FOUND = "approval_not_found" {
        cause: "The id is wrong, or the call was approved, denied or given up meanwhile.",
        next: "`hivekeep approvals` shows what waits.",
    }
    /// Whoever calls cannot approve it.
    SELF_APPROVAL = "self_approval" {
        cause: "The same credential asked for the call, or the same user of this host over the same door.",
        next: "Have another person approve it, or set `policy.approvals.self_approval`.",
    }
    /// There is no such grant.
    GRANT_NOT_FOUND = "grant_not_found" {
        cause: "The id is wrong, or the grant has ended or was revoked.",
        next: "`hivekeep approvals grants` shows those that hold.",
    }
    /// There is no such rule.
    RULE_NOT_FOUND = "rule_not_found" {
        cause: "The name is wrong, or the rule stands in the configuration, which only its file changes.",
        next: "`hivekeep policy rules` shows the rules.",
    }
    /// A rule cannot be added.
    INVALID_RULE = "invalid_rule" {
        cause: "Its name is taken, its condition is not a valid expression, or there are too many rules.",
        next: "Correct what the message names.",
    }
}
