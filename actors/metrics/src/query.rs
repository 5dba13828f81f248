//! Query: counts in a window, a span of time that ends now, from the tallies of whole days and the entries of
//! the first one.

use std::{str::FromStr, sync::Arc};

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use hivekeep_kernel::{Layer, ToolError, User};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    codes,
    ledger::{MetricsLedger, SegmentRow},
    tally::{DayTally, EntryHead, LATEST, NameCounts, OwnerTally, owner, time},
    tools::MetricsReach,
};

/// Longest window.
const MOST_MINUTES: i64 = 365 * 24 * 60;

/// A positive number of days, hours or minutes, at most 365 days: `7d`, `24h`, `30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsWindow {
    minutes: i64,
}

impl MetricsWindow {
    /// Length of the window, back from now.
    pub fn length(self) -> TimeDelta {
        TimeDelta::minutes(self.minutes)
    }
}

impl FromStr for MetricsWindow {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            let shown: String = text.chars().take(40).collect();
            let message = format!("`{shown}` {why}");
            ToolError::new(Layer::Actor, codes::METRICS_WINDOW_INVALID, message)
                .next("give a number with d, h or m, such as `7d`, `24h` or `30m`")
        };
        let parsed = || {
            let unit = text.chars().next_back()?;
            let digits = text.strip_suffix(unit)?;
            let scale = match unit {
                'd' => 24 * 60,
                'h' => 60,
                'm' => 1,
                _ => return None,
            };
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(scale))
        };
        match parsed() {
            None | Some(0) => Err(refused("is not a valid window")),
            Some(minutes) if minutes > MOST_MINUTES => Err(refused("is longer than 365 days")),
            Some(minutes) => Ok(Self { minutes }),
        }
    }
}

impl TryFrom<String> for MetricsWindow {
    type Error = ToolError;

    fn try_from(text: String) -> Result<Self, ToolError> {
        text.parse()
    }
}

impl From<MetricsWindow> for String {
    fn from(window: MetricsWindow) -> Self {
        format!("{}m", window.minutes)
    }
}

/// Names that an answer has of each kind.
const MOST_ROWS: usize = 100;

/// A name and how often it occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricCount {
    /// Type, repository or agent.
    pub key: String,
    /// Number of records.
    pub count: u64,
}

/// A record without its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricBrief {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time at which it was recorded.
    pub timestamp: DateTime<Utc>,
    /// Agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
    /// Repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
}

/// Records that have no row of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamesLeftOut {
    /// `type`, `repo` or `agent`: records with other names than those that are shown. `daemon_event`: events of
    /// the daemon on days that were full, which are in no other number.
    pub kind: String,
    /// Number of records.
    pub count: u64,
}

/// Counts of a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsFound {
    /// Records in the window.
    pub total: u64,
    /// By type, most frequent first.
    pub by_type: Vec<MetricCount>,
    /// By repository; records without one are not counted here.
    pub by_repo: Vec<MetricCount>,
    /// By agent; records without one are not counted here.
    pub by_agent: Vec<MetricCount>,
    /// The ten last records, newest first.
    pub events: Vec<MetricBrief>,
    /// Where not each name has a row: how many records have the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<NamesLeftOut>,
    /// Present where the window begins before the first day that is kept: that day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<DateTime<Utc>>,
}

/// Sums up what a caller may see.
#[derive(Default)]
struct Sum {
    all: OwnerTally,
    latest: Vec<EntryHead>,
}

impl Sum {
    fn day(&mut self, tally: &DayTally, reach: &MetricsReach, from_ms: i64) {
        for tally in tally.0.iter().filter(|(owner, _)| reach.sees(owner)).map(|(_, it)| it) {
            self.all.total += tally.total;
            self.all.uncounted += tally.uncounted;
            self.all.types.merge(&tally.types);
            self.all.repos.merge(&tally.repos);
            self.all.agents.merge(&tally.agents);
            self.latest.extend(tally.latest.iter().filter(|it| it.at_ms >= from_ms).cloned());
        }
    }

    fn found(mut self, kept_from: Option<DateTime<Utc>>) -> MetricsFound {
        // Those that came later stand behind those of the same time.
        self.latest.sort_by_key(|head| head.at_ms);
        let events = self.latest.into_iter().rev().take(LATEST).map(|head| MetricBrief {
            kind: head.kind,
            timestamp: time(head.at_ms),
            agent_id: head.agent_id,
            repo: head.repo,
        });
        let mut left_out = Vec::new();
        let OwnerTally { total, types, repos, agents, uncounted, .. } = self.all;
        let (by_type, by_repo, by_agent) = (
            rows("type", types, &mut left_out),
            rows("repo", repos, &mut left_out),
            rows("agent", agents, &mut left_out),
        );
        if uncounted > 0 {
            left_out.push(NamesLeftOut { kind: "daemon_event".to_owned(), count: uncounted });
        }
        MetricsFound {
            total,
            by_type,
            by_repo,
            by_agent,
            events: events.collect(),
            left_out,
            kept_from,
        }
    }
}

/// Most frequent first, then by name.
fn rows(kind: &str, counts: NameCounts, left_out: &mut Vec<NamesLeftOut>) -> Vec<MetricCount> {
    let mut rows: Vec<_> =
        counts.named.into_iter().map(|(key, count)| MetricCount { key, count }).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let rest = rows.iter().skip(MOST_ROWS).map(|row| row.count).sum::<u64>() + counts.rest;
    rows.truncate(MOST_ROWS);
    if rest > 0 {
        left_out.push(NamesLeftOut { kind: kind.to_owned(), count: rest });
    }
    rows
}

/// Counts what was recorded in a window that ends now.
///
/// # Errors
/// When a segment cannot be read.
pub(crate) async fn count(
    ledger: &Arc<MetricsLedger>,
    window: MetricsWindow,
    reach: &MetricsReach,
    (now, keep_days): (DateTime<Utc>, u32),
) -> Result<MetricsFound, ToolError> {
    let from = now - window.length();
    let (from_ms, first) = (from.timestamp_millis(), from.date_naive());
    let rows: Vec<SegmentRow> =
        ledger.rows().into_iter().filter(|row| row.id.date == first && row.entries > 0).collect();
    let whole = rows.iter().all(|row| row.first_ms.is_none_or(|at| at >= from_ms));
    let mut sum = Sum::default();
    let mut tallies = ledger.tallies(first);
    if !whole && tallies.first().is_some_and(|(date, _)| *date == first) {
        let (_, tally) = tallies.remove(0);
        part(ledger, &rows, (&tally, reach, from_ms), &mut sum).await?;
    }
    tallies.iter().for_each(|(_, tally)| sum.day(tally, reach, from_ms));
    let kept = MetricsLedger::first_kept(now.date_naive(), keep_days);
    let kept = (kept > first).then(|| kept.and_time(NaiveTime::MIN).and_utc());
    Ok(sum.found(kept))
}

/// Counts the entries of the day in which the window begins, one by one.
async fn part(
    ledger: &Arc<MetricsLedger>,
    rows: &[SegmentRow],
    (day, reach, from_ms): (&DayTally, &MetricsReach, i64),
    sum: &mut Sum,
) -> Result<(), ToolError> {
    for row in rows.iter().filter(|row| row.last_ms.is_some_and(|at| at >= from_ms)) {
        let Some(segment) = ledger.segment(row.id).await? else { continue };
        let unpacked = tokio::task::spawn_blocking(move || segment.entries()).await;
        let broken = |why: String| ToolError::internal(format!("segment {}: {why}", row.id));
        let entries = unpacked.map_err(|error| broken(error.to_string()))?.map_err(broken)?;
        for entry in entries.iter().filter(|entry| entry.at_ms >= from_ms) {
            let owner = owner(entry);
            // An entry that came behind the tally is counted by the next query.
            let Some(day) = day.0.get(&owner).filter(|_| reach.sees(&owner)) else { continue };
            sum.all.total += 1;
            sum.all.types.add_as(&entry.kind, &day.types);
            sum.all.repos.add_as(&entry.repo, &day.repos);
            sum.all.agents.add_as(&entry.agent_id, &day.agents);
            sum.latest.push(entry.into());
        }
        // Only the last ones are shown.
        sum.latest.sort_by_key(|head| head.at_ms);
        let spare = sum.latest.len().saturating_sub(LATEST);
        sum.latest.drain(..spare);
    }
    Ok(())
}

impl MetricsReach {
    fn sees(&self, owner: &str) -> bool {
        match self {
            Self::All => true,
            Self::User(user) => user.to_string() == owner,
        }
    }

    /// Whether entries of this user, or of the daemon, are seen.
    pub(crate) fn sees_user(&self, user: Option<User>) -> bool {
        match self {
            Self::All => true,
            Self::User(own) => user == Some(*own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_positive_number_with_a_unit() {
        let minutes = |text: &str| text.parse::<MetricsWindow>().map(|it| it.minutes);
        for (text, is) in [
            ("1m", 1),
            ("30m", 30),
            ("24h", 1440),
            ("7d", 10_080),
            ("007d", 10_080),
            ("365d", 525_600),
        ] {
            assert_eq!(minutes(text), Ok(is), "{text}");
        }
        for bad in [
            "",
            "d",
            "7",
            "0d",
            "-7d",
            "+7d",
            "7 d",
            "7D",
            "7w",
            "1.5h",
            "7dd",
            "366d",
            "8761h",
            "525601m",
            "99999999999999999999d",
            "７d",
            "7ö",
        ] {
            assert_eq!(minutes(bad).expect_err(bad).code, "metrics_window_invalid", "{bad}");
        }
    }
}
