//! Section `[script]`.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of each user's library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Scripts of one user, deleted ones not counted.
    #[schemars(range(min = 1))]
    pub max_scripts: usize,
    /// Size of one user's library with every version of every script, held in memory. A version counts
    /// for at least 4 KiB. Deleted scripts are removed for good, oldest first, where it would be
    /// exceeded.
    #[schemars(range(min = 1))]
    pub max_library_mb: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_scripts: 500, max_library_mb: 64 }
    }
}

impl Options {
    /// Size of one user's library.
    pub(crate) fn max_library_bytes(&self) -> usize {
        self.max_library_mb.saturating_mul(1024 * 1024)
    }
}

impl FamilyOptions for Options {}
