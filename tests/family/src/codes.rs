//! Error codes of counters.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such counter.
    COUNTER_NOT_FOUND = "counter_not_found" {
        cause: "The name is wrong, or the counter is another session's.",
        next: "`counter_list` shows yours.",
    }
    /// There are as many counters as there may be.
    TOO_MANY_COUNTERS = "too_many_counters" {
        cause: "The section's `max_counters` is reached.",
        next: "Remove a counter first.",
    }
}
