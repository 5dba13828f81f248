//! Unrecorded state of a workspace's end: a step under way, or a pause. Pure.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::ToolError;
use tokio::time::Instant;

/// Pause before a failed end is tried again; it doubles with each failure, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Unrecorded state of an end.
#[derive(Default)]
pub(crate) struct LifetimeEnd {
    /// Whether a step of the end is under way.
    pub(crate) under_way: bool,
    delayed: Option<Delayed>,
    /// Held by changes of the lifetime under way: an end waits for them.
    pub(crate) changes: Arc<()>,
}

struct Delayed {
    why: ToolError,
    pause: Duration,
    again_at: Instant,
}

impl LifetimeEnd {
    /// Why the end was not carried out when it was due.
    pub(crate) fn delayed(&self) -> Option<String> {
        self.delayed.as_ref().map(|delayed| delayed.why.to_text())
    }

    /// Whether no step is to be begun now.
    pub(crate) fn waits(&self) -> bool {
        let changes = Arc::strong_count(&self.changes) > 1;
        self.under_way
            || changes
            || self.delayed.as_ref().is_some_and(|it| Instant::now() < it.again_at)
    }

    /// Clears the delay.
    pub(crate) fn undelay(&mut self) {
        self.delayed = None;
    }

    /// Delays an end that failed; true if the error is another one than before.
    pub(crate) fn delay(&mut self, why: ToolError) -> bool {
        let before = self.delayed.take();
        let pause = before.as_ref().map_or(FIRST_PAUSE, |it| (it.pause * 2).min(LONGEST_PAUSE));
        let news = before.is_none_or(|before| before.why.code != why.code);
        self.delayed = Some(Delayed { why, pause, again_at: Instant::now() + pause });
        news
    }
}
