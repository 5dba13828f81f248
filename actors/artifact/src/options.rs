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
    pub kept_hours: u32,
    /// Size of one user's artifacts together. Each counts for at least 4 KiB.
    pub max_user_mb: u64,
    /// Size of all artifacts together.
    pub max_total_mb: u64,
    /// Artifacts of one user.
    pub max_per_user: usize,
}

/// Limit of `kept_hours`: a year.
const MOST_HOURS: u32 = 24 * 366;

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

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let keys = [
            ("kept_hours", u64::from(self.kept_hours)),
            ("max_user_mb", self.max_user_mb),
            ("max_total_mb", self.max_total_mb),
            ("max_per_user", self.max_per_user as u64),
        ];
        let none = keys.into_iter().filter(|(_, value)| *value == 0);
        let mut wrong: Vec<_> = none.map(|(key, _)| (key, "must be above 0".to_owned())).collect();
        if self.kept_hours > MOST_HOURS {
            wrong.push(("kept_hours", format!("must be at most {MOST_HOURS}")));
        }
        wrong
    }
}
