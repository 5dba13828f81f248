//! Error codes of metrics.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The day holds as many metrics as it may.
    METRICS_DAY_FULL = "metrics_day_full" {
        cause: "`metrics.max_records_per_day` or `metrics.max_mb_per_day` is reached.",
        next: "Record fewer, larger steps; the next day (UTC) begins empty.",
    }
    /// The window is not one that can be asked for.
    METRICS_WINDOW_INVALID = "metrics_window_invalid" {
        cause: "`since` is not a positive integer with d, h or m, or is longer than 365 days.",
        next: "Give for example `30m`, `24h` or `7d`, at most `365d`.",
    }
}
