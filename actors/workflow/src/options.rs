//! Section `[workflow]` of the configuration.

use hivekeep_manifest_registry::RegistryLimits;
use hivekeep_runtime::{FamilyOptions, runs::RunOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of each user's workflows, of those that the operators keep for everybody, and of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Workflows by name; a user's tier may allow fewer (`workflows`).
    #[schemars(range(min = 1))]
    pub max_workflows: usize,
    /// Size of all versions of all manifests of workflows, held in memory. A version counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_manifests_mb: usize,
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
        Self {
            max_workflows: 500,
            max_manifests_mb: 16,
            max_running: 32,
            kept: 1_000,
            kept_days: 30,
        }
    }
}

impl FamilyOptions for Options {}

impl Options {
    /// Bounds of the workflows of a scope.
    pub(crate) fn workflows(&self) -> RegistryLimits {
        let bytes = self.max_manifests_mb.saturating_mul(1024 * 1024);
        RegistryLimits { names: self.max_workflows, bytes }
    }

    /// Bounds of the runs.
    pub(crate) fn runs(&self) -> RunOptions {
        let Self { max_running, kept, kept_days, .. } = *self;
        RunOptions { max_running, kept, kept_days }
    }
}
