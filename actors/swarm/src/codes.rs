//! Error codes of swarms.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such swarm.
    SWARM_NOT_FOUND = "swarm_not_found" {
        cause: "The id is wrong, or its results are not kept any more.",
        next: "`swarm_status` without `swarm_id` lists the swarms.",
    }
    /// The swarm is being written down.
    SWARM_STATE = "swarm_state" {
        cause: "The call came right after the one that began the swarm.",
        next: "Repeat the call after `retry_after_ms`.",
    }
    /// The number of swarms that run has reached its limit.
    TOO_MANY_SWARMS = "too_many_swarms" {
        cause: "`swarm.max_running` is reached.",
        next: "Wait for one with `swarm_status`, or raise `swarm.max_running`.",
    }
    /// The notes for a swarm's workers are too large.
    CONTEXT_TOO_LARGE = "context_too_large" {
        cause: "The queries of `vault_context` find too much.",
        next: "Ask for less; nothing was forked.",
    }
    /// A cancelled task of a swarm may still run.
    MAY_STILL_RUN = "may_still_run" {
        cause: "The guest of its fork did not say that the command stopped.",
        next: "Look into the fork, or remove it with `workspace_destroy`.",
    }
    /// The guest told no result of a swarm's task.
    NO_RESULT = "no_result" {
        cause: "The guest hangs, or its daemon was replaced.",
        next: "Look into the fork with `workspace_logs`.",
    }
}
