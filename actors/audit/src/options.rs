//! Options of the audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is kept of the audit log, and how soon it is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// True keeps the audit log. Each call then takes a little longer.
    pub enabled: bool,
    /// Time after which an entry is on the disk, in milliseconds. A loss of power loses no older one.
    #[schemars(range(min = 1, max = 10_000))]
    pub sync_ms: u64,
    /// Size of one file, in MiB.
    #[schemars(range(min = 1, max = 1024))]
    pub segment_mb: u64,
    /// Size of all files, in MiB; beyond it the oldest go, which the log says itself.
    pub keep_mb: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { enabled: false, sync_ms: 20, segment_mb: 16, keep_mb: 1024 }
    }
}

impl Options {
    /// Settings that cannot work, as key and reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.keep_mb < self.segment_mb.saturating_mul(4) {
            wrong.push(("keep_mb", "must be at least four times `segment_mb`".to_owned()));
        }
        wrong
    }
}
