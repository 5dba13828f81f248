//! Section `[artifact]`.

use chrono::TimeDelta;
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of what is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Keep results that are too large for their answers. Without it they are lost to their callers.
    pub enabled: bool,
    /// How long an artifact is kept.
    #[schemars(range(min = 1, max = 8784))]
    pub kept_hours: u32,
    /// Size of one user's artifacts together. Each counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_user_mb: u64,
    /// Size of all artifacts together.
    #[schemars(range(min = 1))]
    pub max_total_mb: u64,
    /// Artifacts of one user.
    #[schemars(range(min = 1))]
    pub max_per_user: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            kept_hours: 24,
            max_user_mb: 512,
            max_total_mb: 2048,
            max_per_user: 256,
        }
    }
}

impl Options {
    /// How long an artifact is kept.
    pub(crate) fn kept(&self) -> TimeDelta {
        TimeDelta::hours(self.kept_hours.into())
    }
}

impl FamilyOptions for Options {}
