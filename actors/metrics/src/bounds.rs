//! Bounds of a day, of which no user has more than half of what the others leave.

use chrono::NaiveDate;
use hivekeep_kernel::{Layer, PoolFull, ToolError};

use crate::codes;

/// Bounds of a day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DayBounds {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Entries of a day, and their size as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DayAmount {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl DayAmount {
    pub(crate) fn add(&mut self, more: Self) {
        self.entries += more.entries;
        self.bytes += more.bytes;
    }
}

impl DayBounds {
    /// Judges what is to be added for an owner of `own` to a day that has `all`.
    ///
    /// # Errors
    /// `metrics_day_full`; `busy` for an owner who would have more than half of what others leave.
    pub(crate) fn check(
        self,
        date: NaiveDate,
        all: DayAmount,
        own: DayAmount,
        more: DayAmount,
    ) -> Result<(), ToolError> {
        for (option, most, all, own, more) in [
            ("metrics.max_records_per_day", self.entries, all.entries, own.entries, more.entries),
            ("metrics.max_mb_per_day", self.bytes, all.bytes, own.bytes, more.bytes),
        ] {
            let half = most.saturating_sub(all - own).div_ceil(2);
            let error = if all + more > most {
                let message = format!("the records of {date} have all that `{option}` bounds");
                ToolError::new(Layer::Actor, codes::METRICS_DAY_FULL, message)
            } else if own + more > half {
                let most = usize::try_from(half).unwrap_or(usize::MAX);
                let message =
                    format!("your records of {date} have half of what others leave of `{option}`");
                ToolError { message, ..PoolFull::Own { option, most }.into() }
            } else {
                continue;
            };
            return Err(error.next("record fewer, larger steps; the next day (UTC) begins empty"));
        }
        Ok(())
    }
}
