//! Entries, each one thing that happened, and what a day has of them: its amount with its bounds, of which no
//! user has more than half of what the others leave, and its tally, counts by owner, and its last entries.
//! The tally is pure, and bounded in names.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, NaiveDate, Utc};
use hivekeep_kernel::{Layer, PoolFull, ToolError, User};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::codes;

/// Most bytes of a type, a repository's or an agent's name.
pub(crate) const MOST_NAME_BYTES: usize = 128;

/// An entry. Its time has milliseconds, and a day (UTC) that decides in which segment it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MetricEntry {
    /// Unix milliseconds.
    pub(crate) at_ms: i64,
    /// User whose session recorded it; the daemon itself without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<User>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) repo: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) agent_id: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) data: Map<String, Value>,
}

impl MetricEntry {
    /// Refuses names that no tally or database could carry.
    ///
    /// # Errors
    /// `invalid_input`.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        if self.kind.trim().is_empty() {
            return Err(ToolError::invalid("`type` is empty"));
        }
        for (field, name) in
            [("type", &self.kind), ("repo", &self.repo), ("agent_id", &self.agent_id)]
        {
            if name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
                let why = format!("has more than {MOST_NAME_BYTES} bytes, or control characters");
                return Err(ToolError::invalid(format!("`{field}` {why}")));
            }
        }
        Ok(())
    }

    /// Size as JSON.
    pub(crate) fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len() as u64)
    }

    pub(crate) fn at(&self) -> DateTime<Utc> {
        time(self.at_ms)
    }

    pub(crate) fn date(&self) -> NaiveDate {
        self.at().date_naive()
    }
}

/// Time of so many Unix milliseconds; the epoch for what is no time.
pub(crate) fn time(unix_ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(unix_ms).unwrap_or_default()
}

/// Bounds of a day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DayBounds {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Entries of a day, and their size as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DayAmount {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl DayAmount {
    pub(crate) fn add(&mut self, more: Self) {
        self.entries += more.entries;
        self.bytes += more.bytes;
    }
}

impl DayBounds {
    /// Judges what is to be added for an owner of `own` to a day that has `all`.
    ///
    /// # Errors
    /// `metrics_day_full`; `busy` for an owner who would have more than half of what others leave.
    pub(crate) fn check(
        self,
        date: NaiveDate,
        all: DayAmount,
        own: DayAmount,
        more: DayAmount,
    ) -> Result<(), ToolError> {
        for (option, most, all, own, more) in [
            ("metrics.max_records_per_day", self.entries, all.entries, own.entries, more.entries),
            ("metrics.max_mb_per_day", self.bytes, all.bytes, own.bytes, more.bytes),
        ] {
            let half = most.saturating_sub(all - own).div_ceil(2);
            let error = if all + more > most {
                let message = format!("the records of {date} have all that `{option}` bounds");
                ToolError::new(Layer::Actor, codes::METRICS_DAY_FULL, message)
            } else if own + more > half {
                let most = usize::try_from(half).unwrap_or(usize::MAX);
                let message =
                    format!("your records of {date} have half of what others leave of `{option}`");
                ToolError { message, ..PoolFull::Own { option, most }.into() }
            } else {
                continue;
            };
            return Err(error.next("record fewer, larger steps; the next day (UTC) begins empty"));
        }
        Ok(())
    }
}

/// Most names of one kind (types, repositories, agents) that a day counts apart for an owner.
const MOST_NAMES: usize = 200;
/// Entries that a query shows.
pub(crate) const LATEST: usize = 10;

/// Owner of entries: a user as text, or the daemon.
pub(crate) type MetricOwner = String;
/// Owner of the daemon's own events.
pub(crate) const DAEMON: &str = "daemon";

/// Counts by name. A name that comes when there are as many as may be is counted in the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameCounts {
    pub(crate) named: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rest: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl NameCounts {
    /// Counts a name; an empty one is none.
    fn add(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let room = self.named.len() < MOST_NAMES;
        match self.named.get_mut(name) {
            Some(count) => *count += 1,
            None if room => drop(self.named.insert(name.to_owned(), 1)),
            None => self.rest += 1,
        }
    }

    /// Counts a name as the tally of its whole day did.
    pub(crate) fn add_as(&mut self, name: &str, day: &Self) {
        if name.is_empty() {
            return;
        }
        match day.named.contains_key(name) {
            true => *self.named.entry(name.to_owned()).or_default() += 1,
            false => self.rest += 1,
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, count) in &other.named {
            match self.named.get_mut(name) {
                Some(sum) => *sum += count,
                None => drop(self.named.insert(name.clone(), *count)),
            }
        }
        self.rest += other.rest;
    }
}

/// An entry without its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryHead {
    pub(crate) at_ms: i64,
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) repo: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) agent_id: String,
}

impl From<&MetricEntry> for EntryHead {
    fn from(entry: &MetricEntry) -> Self {
        let MetricEntry { at_ms, kind, repo, agent_id, .. } = entry.clone();
        Self { at_ms, kind, repo, agent_id }
    }
}

/// Counts of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerTally {
    pub(crate) total: u64,
    /// Size of the entries as JSON.
    #[serde(default)]
    pub(crate) bytes: u64,
    pub(crate) types: NameCounts,
    pub(crate) repos: NameCounts,
    pub(crate) agents: NameCounts,
    /// Events of the daemon that came when the day was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) uncounted: u64,
    /// The last entries, in the order in which they came.
    pub(crate) latest: VecDeque<EntryHead>,
}

/// Counts of a day, or of a part of it from its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct DayTally(pub(crate) BTreeMap<MetricOwner, OwnerTally>);

pub(crate) fn owner(entry: &MetricEntry) -> MetricOwner {
    entry.user.map_or_else(|| DAEMON.to_owned(), |user| user.to_string())
}

impl OwnerTally {
    /// All of it.
    pub(crate) fn amount(&self) -> DayAmount {
        DayAmount { entries: self.total, bytes: self.bytes }
    }
}

impl DayTally {
    pub(crate) fn add(&mut self, entry: &MetricEntry) {
        let tally = self.0.entry(owner(entry)).or_default();
        tally.total += 1;
        tally.bytes += entry.bytes();
        tally.types.add(&entry.kind);
        tally.repos.add(&entry.repo);
        tally.agents.add(&entry.agent_id);
        if tally.latest.len() == LATEST {
            tally.latest.pop_front();
        }
        tally.latest.push_back(entry.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_counted_in_the_rest_and_empty_ones_are_none() {
        let mut tally = DayTally::default();
        let entry = |kind: String| MetricEntry {
            at_ms: 1,
            user: None,
            kind,
            repo: String::new(),
            agent_id: String::new(),
            data: Default::default(),
        };
        for nth in 0..MOST_NAMES + 5 {
            tally.add(&entry(format!("t{nth}")));
        }
        tally.add(&entry("t0".to_owned()));
        let own = &tally.0[DAEMON];
        assert_eq!((own.types.named.len(), own.types.rest), (MOST_NAMES, 5));
        assert_eq!(own.types.named["t0"], 2, "a name that is counted apart stays so");
        assert_eq!((own.total, own.repos.named.len(), own.repos.rest), (206, 0, 0));
        assert_eq!(own.latest.len(), LATEST);
        assert_eq!(own.latest.back().map(|head| head.kind.as_str()), Some("t0"));
    }
}
