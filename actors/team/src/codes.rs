//! Error codes of teams, their inboxes and tasks.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such team.
    TEAM_NOT_FOUND = "team_not_found" {
        cause: "The name is wrong, or the team was destroyed.",
        next: "`team` with action `list` shows the teams.",
    }
    /// The team has no such member.
    MEMBER_NOT_FOUND = "member_not_found" {
        cause: "The name is wrong, or the member belongs to another team.",
        next: "Name one of `details.members`.",
    }
    /// The team is in a state in which this cannot be done.
    TEAM_STATE = "team_state" {
        cause: "It is still being made or destroyed, or a team below it is left.",
        next: "`team` with action `status` shows the state.",
    }
    /// Teams would be nested too deep.
    NESTING_TOO_DEEP = "nesting_too_deep" {
        cause: "The parent is at the configured depth already.",
        next: "Make the team below a higher one, or raise `team.max_nesting_depth`.",
    }
    /// The team would have more members than a team above allows.
    TEAM_BUDGET_EXCEEDED = "team_budget_exceeded" {
        cause: "Members are counted in every team above, against its `max_vms`.",
        next: "Name fewer roles, or destroy a team below that one.",
    }
    /// There are as many teams or members as there may be.
    TEAM_LIMIT = "team_limit" {
        cause: "`team.max_teams`, `team.max_total_vms` or `team.max_vms_per_team` is reached.",
        next: "Destroy a team that is not needed any more, name fewer roles, or raise the limit.",
    }
    /// Parts of the team could not be removed.
    TEAM_NOT_DESTROYED = "team_not_destroyed" {
        cause: "Workspaces of members were busy or could not be removed; `details.members` says why.",
        next: "Call it again: it goes on with what is left.",
    }
    /// Several workspaces have a snapshot of this name.
    SNAPSHOT_AMBIGUOUS = "snapshot_ambiguous" {
        cause: "The snapshot was named without its workspace.",
        next: "Name the workspace as `golden_workspace`.",
    }
    /// There is nobody to send the message to.
    NO_RECIPIENTS = "no_recipients" {
        cause: "The sender is the only member of the team.",
        next: "Name the member it is for; a member may write to itself.",
    }
    /// The message is too large.
    MESSAGE_TOO_LARGE = "message_too_large" {
        cause: "`content` has more bytes than `details.limit_bytes`.",
        next: "Write it to a file of a workspace and send its path.",
    }
    /// The member's inbox is full.
    INBOX_FULL = "inbox_full" {
        cause: "The member has not received its messages, or has too many tasks.",
        next: "Have it receive, or wait for its results; nothing was put in.",
    }
    /// Too many calls wait for the removal of the team.
    TOO_MANY_WAITING = "too_many_waiting" {
        cause: "`destroy` is repeated before the earlier calls have answered.",
        next: "`team` with action `status` shows what is left.",
    }
    /// The task's description is not valid.
    INVALID_TASK = "invalid_task" {
        cause: "A field of `content` is missing, unknown or out of range; `details.field` names it.",
        next: "Correct the field and assign the task again.",
    }
    /// Another task of this id was given to the member before.
    TASK_DIFFERS = "task_differs" {
        cause: "An id was used for two tasks.",
        next: "Choose another id; nothing was assigned.",
    }
}
