//! A limit as it is counted in memory: a fixed window, or calls in flight. Pure.

use chrono::{DateTime, Utc};
use globset::{Glob, GlobSet};

use super::{CallLimit, LimitPeriod, counts::CountedWindow};

/// Part of a limit that is written down at once.
const LEASE_PART: u32 = 16;

#[derive(Debug)]
pub(super) struct CountedLimit {
    pub(super) key: String,
    pub(super) per: LimitPeriod,
    pub(super) most: u32,
    tools: GlobSet,
    /// Beginning of the window; `None` before the first call.
    began: Option<DateTime<Utc>>,
    /// Calls made in the window, or in flight.
    used: u32,
    /// Calls of the window that are written down, if not yet on the disk.
    pub(super) leased: u32,
}

impl CountedLimit {
    /// Limit of `limit`, going on with what was written down.
    pub(super) fn new(limit: &CallLimit, written: Option<CountedWindow>) -> Self {
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

    pub(super) fn counts(&self, tool: &str) -> bool {
        self.tools.is_match(tool)
    }

    /// When another call may be made: now (`None`), at a time, or when one ends.
    pub(super) fn blocked(&mut self, now: DateTime<Utc>) -> Option<Option<DateTime<Utc>>> {
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
    pub(super) fn take(&mut self) -> Option<CountedWindow> {
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
    pub(super) fn end(&mut self) {
        if self.per == LimitPeriod::AtOnce {
            self.used = self.used.saturating_sub(1);
        }
    }
}
