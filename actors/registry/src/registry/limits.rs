//! Limits of admission: who may have how much of a target.

use std::time::Duration;

use hivekeep_kernel::{RateClass, ToolSpec};
use serde_json::Value;

use crate::AdmissionOptions;

/// The class of slots that a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Runs commands or makes machines: may take long.
    Work,
    /// Runs beside no other call of its class: one after another.
    Exclusive,
    /// Everything else.
    Control,
}

impl Lane {
    /// The class of a call of a tool.
    pub(crate) fn of(spec: &ToolSpec, args: &Value) -> Self {
        if !spec.concurrency_safe {
            return Self::Exclusive;
        }
        match spec.class(args) {
            RateClass::Create | RateClass::Exec => Self::Work,
            RateClass::File | RateClass::Default => Self::Control,
        }
    }
}

/// The sessions that a target serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// All sessions: each has at most half of the target.
    All,
    /// A single session, in the main.
    One,
}

/// Calls of one session in one lane; they wait in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow<S> {
    pub(super) session: S,
    pub(super) lane: Lane,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// In flight, of both lanes.
    pub(super) all: u32,
    /// In flight, of the lane `Work`.
    pub(super) work: u32,
    pub(super) queued: u32,
    /// Parked, of one session.
    pub(super) parked: u32,
    pub(super) wait: Duration,
}

impl Limits {
    pub(super) fn new(options: &AdmissionOptions) -> Self {
        let all = options.in_flight.get();
        let work = all.saturating_sub(options.reserved).max(1);
        let AdmissionOptions { queued, parked, .. } = *options;
        Self { all, work, queued, parked, wait: options.queue_wait() }
    }

    /// Limits of a session at a target.
    pub(super) fn share(self, serves: Serves) -> Self {
        match serves {
            Serves::One => self,
            Serves::All => {
                let half = |of: u32| (of / 2).max(1);
                let queued = half(self.queued).min(self.queued);
                Self { all: half(self.all), work: half(self.work), queued, ..self }
            }
        }
    }
}
