//! Section `[volume]`.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of each user's volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Volumes of one user. One that is mounted takes a loop device of the host.
    #[schemars(range(min = 1))]
    pub max_volumes: usize,
    /// Sizes of one user's volumes together, as they were asked for.
    #[schemars(range(min = 1))]
    pub max_total_mb: u64,
    /// How long a volume that no workspace has stays mounted after the last use of its files.
    pub idle_unmount_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_volumes: 50, max_total_mb: 100 * 1024, idle_unmount_secs: 300 }
    }
}

impl Options {
    /// Sizes of one user's volumes together.
    pub(crate) fn max_total_bytes(&self) -> u64 {
        self.max_total_mb.saturating_mul(1 << 20)
    }
}

impl FamilyOptions for Options {}
