//! Options of tiers.

use std::{collections::BTreeMap, num::NonZeroU32};

use chrono::TimeDelta;
use globset::Glob;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one user may call and hold, over all its sessions. Empty: nothing beyond the other limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaTier {
    /// Limits of calls.
    pub calls: Vec<CallLimit>,
    /// What the user may hold at a time, by kind: `scripts = 5`.
    pub holds: BTreeMap<String, u64>,
}

/// Limit of the calls of some tools together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallLimit {
    /// Names of tools, or patterns such as `fs.*`.
    pub tools: Vec<String>,
    /// Window that is counted in; it begins with the first call in it.
    pub per: LimitPeriod,
    /// Calls.
    pub most: NonZeroU32,
}

/// Time in which calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitPeriod {
    /// Calls that run at a time.
    AtOnce,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
}

impl LimitPeriod {
    /// Length of the window; `None` for calls in flight.
    pub(super) fn length(self) -> Option<TimeDelta> {
        match self {
            Self::AtOnce => None,
            Self::Minute => Some(TimeDelta::minutes(1)),
            Self::Hour => Some(TimeDelta::hours(1)),
            Self::Day => Some(TimeDelta::days(1)),
            Self::Week => Some(TimeDelta::weeks(1)),
            Self::Month => Some(TimeDelta::days(30)),
        }
    }

    /// As in the configuration.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "at_once",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

impl CallLimit {
    /// Name of the limit in the journal and in errors.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.tools.join(","), self.per.word())
    }
}

impl QuotaTier {
    /// Everything that is wrong: key below the tier, and reason.
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        for (nth, limit) in self.calls.iter().enumerate() {
            let key = format!("calls[{nth}].tools");
            if limit.tools.is_empty() {
                problems.push((key.clone(), "names no tool".to_owned()));
            }
            let wrong = limit.tools.iter().filter_map(|tool| Glob::new(tool).err());
            problems.extend(wrong.map(|error| (key.clone(), error.to_string())));
            if self.calls.iter().take(nth).any(|other| other.key() == limit.key()) {
                problems.push((key, format!("`{}` is limited twice", limit.key())));
            }
        }
        problems
    }
}
