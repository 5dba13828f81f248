//! Quota tiers: what a user may call in a window of time, at once, and hold at a time.
//!
//! A tier is configuration, and each user has one. A limit counts the calls of some tools, in a window
//! or in flight; a call that is over any of its limits takes from none. Windows are durable
//! ([`CallCounts`]): a number of calls is written down before they are made, so a restart of
//! the daemon may forget calls that were left and never grants one twice.

mod meter;

use std::{collections::BTreeMap, num::NonZeroU32};

use chrono::{DateTime, TimeDelta, Utc};
use globset::{Glob, GlobSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use meter::{CallCounts, CallMeter, CallPermit};

/// Part of a limit that is written down at once.
const LEASE_PART: u32 = 16;

/// Limits of one user's calls and holdings, over all its sessions. Empty: nothing beyond the other
/// limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaTier {
    /// Limits of calls.
    pub calls: Vec<CallLimit>,
    /// Most that the user may hold at a time, by kind: `scripts = 5`.
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
    fn length(self) -> Option<TimeDelta> {
        match self {
            Self::AtOnce => None,
            Self::Minute => Some(TimeDelta::minutes(1)),
            Self::Hour => Some(TimeDelta::hours(1)),
            Self::Day => Some(TimeDelta::days(1)),
            Self::Week => Some(TimeDelta::weeks(1)),
            Self::Month => Some(TimeDelta::days(30)),
        }
    }

    /// Value of `per` in the configuration.
    fn word(self) -> &'static str {
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
    fn key(&self) -> String {
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

/// Window of a limit, and the calls that are written down as made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountedWindow {
    began: DateTime<Utc>,
    /// Calls that may have been made.
    upto: u32,
}

#[derive(Debug)]
struct CountedLimit {
    key: String,
    per: LimitPeriod,
    most: u32,
    tools: GlobSet,
    /// Beginning of the window; `None` before the first call.
    began: Option<DateTime<Utc>>,
    /// Calls made in the window, or in flight.
    used: u32,
    /// Calls of the window that are written down, if not yet on the disk.
    leased: u32,
}

impl CountedLimit {
    /// Limit of `limit`, going on with what was written down.
    fn new(limit: &CallLimit, written: Option<CountedWindow>) -> Self {
        let mut tools = GlobSet::builder();
        for glob in limit.tools.iter().filter_map(|tool| Glob::new(tool).ok()) {
            tools.add(glob);
        }
        let written = written.filter(|_| limit.per != LimitPeriod::AtOnce);
        let upto = written.map_or(0, |written| written.upto);
        Self {
            key: limit.key(),
            per: limit.per,
            most: limit.most.get(),
            // Patterns were judged with the configuration.
            tools: tools.build().unwrap_or_default(),
            began: written.map(|written| written.began),
            used: upto,
            leased: upto,
        }
    }

    fn counts(&self, tool: &str) -> bool {
        self.tools.is_match(tool)
    }

    /// When another call may be made: now (`None`), at a time, or when one ends.
    fn blocked(&mut self, now: DateTime<Utc>) -> Option<Option<DateTime<Utc>>> {
        let ends = self.roll(now);
        (self.used >= self.most).then_some(ends)
    }

    /// Begins a new window when the last one is over. One that began after `now` was counted with a
    /// clock that has been set back: it begins now, with its calls. Returns its end.
    fn roll(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let length = self.per.length()?;
        let began = self.began.unwrap_or(now).min(now);
        if self.began.is_none() || now >= began + length {
            (self.used, self.leased) = (0, 0);
            self.began = Some(now);
            return Some(now + length);
        }
        self.began = Some(began);
        Some(began + length)
    }

    /// Counts a call; returns what is to be written down before it is made.
    fn take(&mut self) -> Option<CountedWindow> {
        self.used += 1;
        let began = self.began.filter(|_| self.per != LimitPeriod::AtOnce)?;
        if self.used <= self.leased {
            return None;
        }
        let ahead = (self.most / LEASE_PART).max(1);
        self.leased = (self.used - 1).saturating_add(ahead).min(self.most);
        Some(CountedWindow { began, upto: self.leased })
    }

    /// Counts the end of a call in flight.
    fn end(&mut self) {
        if self.per == LimitPeriod::AtOnce {
            self.used = self.used.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
