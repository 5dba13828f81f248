//! Section `[workflow]` of the configuration.

use hivekeep_runtime::{FamilyOptions, runs::RunOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Runs that take steps at a time, at most three quarters of them one user's; a user's tier may allow fewer
    /// (`runs`). One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Runs that are over and kept.
    pub kept: usize,
    /// Days that a run is kept after its end.
    pub kept_days: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_running: 32, kept: 1_000, kept_days: 30 }
    }
}

impl FamilyOptions for Options {}

impl Options {
    /// Bounds of the runs.
    pub(crate) fn runs(&self) -> RunOptions {
        let Self { max_running, kept, kept_days, .. } = *self;
        RunOptions { max_running, kept, kept_days }
    }
}
