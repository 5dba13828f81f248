//! Restart policy as data, and the restart meter that applies it.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// Restart policy: which ends restart a child, how often, and what follows when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// Ends of the child that are answered with a restart.
    pub restart: Restart,
    /// Maximum number of restarts within `window_secs`; one more and the child is given up.
    pub max_restarts: u32,
    /// Length of the sliding window.
    pub window_secs: u64,
    /// Wait before each restart.
    pub backoff: Backoff,
    /// Consequence for the supervisor when the child is given up.
    pub give_up: GiveUp,
}

/// Ends that are answered with a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Any end but an ordered stop.
    Always,
    /// Failures only; a child that stops by itself is done.
    OnFailure,
    /// No end: the owner decides.
    Never,
}

/// Exponential back-off: the wait before the nth restart within the window is `initial_ms`, doubled
/// each time, at most `max_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// First wait.
    pub initial_ms: u64,
    /// Maximum wait.
    pub max_ms: u64,
}

/// Consequence for the supervisor of a child that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUp {
    /// The supervisor fails too: the child is essential.
    Escalate,
    /// The child stays down, listed as `gave_up`; its siblings keep running.
    StayDown,
}

impl RestartPolicy {
    /// Policy of children without which the daemon is useless.
    pub const ESSENTIAL: Self = Self {
        restart: Restart::Always,
        max_restarts: 5,
        window_secs: 60,
        backoff: Backoff { initial_ms: 50, max_ms: 5_000 },
        give_up: GiveUp::Escalate,
    };
    /// Policy of one entity among many.
    pub const ENTITY: Self = Self {
        restart: Restart::OnFailure,
        max_restarts: 5,
        window_secs: 60,
        backoff: Backoff { initial_ms: 100, max_ms: 10_000 },
        give_up: GiveUp::StayDown,
    };
    /// Policy of an attachment: its end is final.
    pub const TEMPORARY: Self = Self {
        restart: Restart::Never,
        max_restarts: 0,
        window_secs: 1,
        backoff: Backoff { initial_ms: 0, max_ms: 0 },
        give_up: GiveUp::StayDown,
    };
}

/// Decision about the end of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartVerdict {
    /// Start the child again after this wait.
    RestartAfter(Duration),
    /// Nothing to do; the child is done.
    Done,
    /// Too many restarts; give the child up.
    GiveUp,
}

/// Restart counter of one child. Pure: the caller supplies the time.
#[derive(Debug, Clone)]
pub struct RestartCounter {
    policy: RestartPolicy,
    recent: VecDeque<Duration>,
}

impl RestartCounter {
    /// Makes a meter without any restarts.
    pub fn new(policy: RestartPolicy) -> Self {
        Self { policy, recent: VecDeque::new() }
    }

    /// Decides about an end of the child at `now`, a time since any fixed origin.
    pub fn judge(&mut self, now: Duration, failed: bool) -> RestartVerdict {
        match self.policy.restart {
            Restart::Never => return RestartVerdict::Done,
            Restart::OnFailure if !failed => return RestartVerdict::Done,
            Restart::OnFailure | Restart::Always => {}
        }
        let window = Duration::from_secs(self.policy.window_secs);
        while self.recent.front().is_some_and(|at| now.saturating_sub(*at) >= window) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.policy.max_restarts as usize {
            return RestartVerdict::GiveUp;
        }
        let doublings = u32::try_from(self.recent.len()).unwrap_or(u32::MAX).min(20);
        self.recent.push_back(now);
        let Backoff { initial_ms, max_ms } = self.policy.backoff;
        RestartVerdict::RestartAfter(Duration::from_millis((initial_ms << doublings).min(max_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_and_then_it_gives_up() {
        let mut meter = RestartCounter::new(RestartPolicy::ENTITY);
        let waits: Vec<_> = (0..6).map(|s| meter.judge(Duration::from_secs(s), true)).collect();
        let ms = |ms| RestartVerdict::RestartAfter(Duration::from_millis(ms));
        assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), ms(1600), RestartVerdict::GiveUp]);
    }

    #[test]
    fn a_restart_is_forgotten_with_its_window_and_waits_have_a_bound() {
        let policy = RestartPolicy { window_secs: 3, max_restarts: 9, ..RestartPolicy::ENTITY };
        let backoff = Backoff { initial_ms: 100, max_ms: 1_000 };
        let mut meter = RestartCounter::new(RestartPolicy { backoff, ..policy });
        let mut at = |ms| match meter.judge(Duration::from_millis(ms), true) {
            RestartVerdict::RestartAfter(wait) => wait.as_millis(),
            other => panic!("{other:?}"),
        };
        assert_eq!([at(0), at(1), at(2), at(2_999)], [100, 200, 400, 800]);
        assert_eq!([at(3_000), at(3_001), at(3_001)], [800, 800, 1_000]);
        assert_eq!(at(7_000), 100);
    }

    #[test]
    fn only_failures_count_on_failure() {
        assert_eq!(
            RestartCounter::new(RestartPolicy::ENTITY).judge(Duration::ZERO, false),
            RestartVerdict::Done
        );
        assert_eq!(
            RestartCounter::new(RestartPolicy::TEMPORARY).judge(Duration::ZERO, true),
            RestartVerdict::Done
        );
    }

    proptest! {
        #[test]
        fn never_more_restarts_than_allowed_in_any_window(gaps in proptest::collection::vec(0u64..40_000, 1..60)) {
            let policy = RestartPolicy::ESSENTIAL;
            let mut meter = RestartCounter::new(policy);
            let (mut now, mut starts) = (0u64, Vec::new());
            for gap in gaps {
                now += gap;
                if let RestartVerdict::RestartAfter(_) = meter.judge(Duration::from_millis(now), true) {
                    starts.push(now);
                }
            }
            for at in &starts {
                let within = starts.iter().filter(|s| **s >= *at && **s < at + policy.window_secs * 1000).count();
                prop_assert!(within <= policy.max_restarts as usize);
            }
        }
    }
}
