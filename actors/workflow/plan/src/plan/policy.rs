//! Policies of nodes: further attempts, further rounds, and failures that stop nothing.

use serde::{Deserialize, Serialize};

/// Exit statuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExitCodes(pub Vec<i32>);

impl ExitCodes {
    fn has(&self, code: Option<i32>) -> bool {
        code.is_some_and(|code| self.0.contains(&code))
    }
}

/// Further attempts behind a failure, with pauses that may grow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptPolicy {
    /// Further attempts.
    pub limit: u32,
    /// Pause before the first of them.
    pub interval_ms: u64,
    /// Factor of each further pause, at least 1.
    pub growth: f64,
    /// Longest pause.
    pub longest_ms: u64,
    /// Exit statuses that are tried again; all without any.
    pub codes: ExitCodes,
}

impl AttemptPolicy {
    /// Pause behind so many attempts that failed, at least one; none if no further one follows.
    pub fn pause_ms(&self, failed: u32, code: Option<i32>) -> Option<u64> {
        let again = self.codes.0.is_empty() || self.codes.has(code);
        (again && failed <= self.limit)
            .then(|| grown(self.interval_ms, self.growth, self.longest_ms, failed))
    }
}

/// Bound of the rounds of a node that is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepeatBound {
    /// Most rounds, the first among them; none is without a bound.
    pub rounds: Option<u32>,
    /// Pause before the second round.
    pub interval_ms: u64,
    /// Factor of each further pause, at least 1.
    pub growth: f64,
    /// Longest pause.
    pub longest_ms: u64,
}

impl RepeatBound {
    /// Pause behind so many rounds, at least one; none if no further one follows.
    pub fn pause_ms(&self, rounds: u32) -> Option<u64> {
        self.rounds
            .is_none_or(|most| rounds < most)
            .then(|| grown(self.interval_ms, self.growth, self.longest_ms, rounds))
    }
}

fn grown(first_ms: u64, growth: f64, longest_ms: u64, behind: u32) -> u64 {
    let exponent = i32::try_from(behind.saturating_sub(1)).unwrap_or(i32::MAX);
    let pause = first_ms as f64 * growth.max(1.0).powi(exponent);
    // A conversion of floats saturates.
    (pause as u64).min(longest_ms.max(first_ms))
}

/// Outcomes of a node behind which later nodes go on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FailurePolicy {
    /// Go on behind any failure.
    pub failed: bool,
    /// Go on where the node was left out.
    pub skipped: bool,
    /// Go on behind these exit statuses.
    pub codes: ExitCodes,
    /// Count the node as a success then.
    pub counts_as_success: bool,
}

impl FailurePolicy {
    /// Whether later nodes go on behind a failure with an exit status; `said` is true if what it wrote says so.
    pub fn goes_on(&self, code: Option<i32>, said: bool) -> bool {
        self.failed || said || self.codes.has(code)
    }
}
