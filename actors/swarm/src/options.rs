//! Options of swarms.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{swarm::state::LEAST_RECORD_KB, tools::RESULT_BUDGET_BYTES};

/// Section `[swarm]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most swarms that run at a time. One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Swarms that are over are kept for `swarm_status`, at most so many of them.
    // Each may have megabytes of output.
    #[schemars(range(max = 1000))]
    pub kept: usize,
    /// The same, at most so many days.
    pub kept_days: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_running: 8, kept: 100, kept_days: 7 }
    }
}

impl FamilyOptions for Options {
    /// What could not be written would hold a swarm up for ever.
    fn store_problems(&self, store: &hivekeep_store::Options) -> Vec<(&'static str, String)> {
        let least = [
            ("max_record_kb", store.max_record_kb, LEAST_RECORD_KB),
            ("max_snapshot_kb", store.max_snapshot_kb, RESULT_BUDGET_BYTES / 1024),
        ];
        let wrong = least.into_iter().filter(|(_, value, least)| value < least);
        wrong
            .map(|(key, _, least)| (key, format!("must be at least {least}, for swarms")))
            .collect()
    }
}
