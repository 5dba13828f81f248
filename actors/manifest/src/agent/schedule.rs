//! Times of an agent's schedule: those of a cron expression, or of an interval.

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::AgentSchedule;
use crate::times::CronTimes;

/// Times of a schedule that is on.
#[derive(Debug, Clone)]
pub enum AgentTimes {
    /// By the calendar.
    Calendar(CronTimes),
    /// By an interval.
    Every(TimeDelta),
}

impl AgentSchedule {
    /// Time zone; `None` for a name that there is not.
    pub(crate) fn zone(&self) -> Option<Tz> {
        match self {
            Self::Cron { timezone: Some(zone), .. } => zone.parse().ok(),
            _ => Some(Tz::UTC),
        }
    }

    /// Its times; `None` for one that is paused, or that never begins anything.
    pub fn times(&self) -> Option<AgentTimes> {
        match self {
            Self::Cron { enabled: Some(false), .. } | Self::Manual {} => None,
            Self::Cron { cron, .. } => {
                Some(AgentTimes::Calendar(CronTimes::parse(cron, self.zone()?).ok()?))
            }
            Self::Interval { seconds } => {
                let every = TimeDelta::try_seconds(i64::try_from(*seconds).ok()?)?;
                (every > TimeDelta::zero()).then_some(AgentTimes::Every(every))
            }
        }
    }
}

impl AgentTimes {
    /// First time after one. An interval counts from `since`.
    pub fn next(&self, since: DateTime<Utc>, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Calendar(times) => times.next(after),
            Self::Every(every) => {
                self.last(since, after).unwrap_or(since).checked_add_signed(*every)
            }
        }
    }

    /// Last time up to one.
    pub fn last(&self, since: DateTime<Utc>, upto: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Calendar(times) => times.last(upto),
            Self::Every(every) => {
                let passed = (upto - since).num_seconds().checked_div(every.num_seconds())?;
                let passed = TimeDelta::try_seconds(passed.checked_mul(every.num_seconds())?)?;
                (passed > TimeDelta::zero()).then(|| since + passed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn cron(cron: &str, zone: Option<&str>) -> AgentTimes {
        let (cron, timezone) = (cron.to_owned(), zone.map(str::to_owned));
        AgentSchedule::Cron { cron, timezone, enabled: None }.times().expect("it is on")
    }

    /// Nights in which clocks change, with the times that an expression has from one on.
    #[test]
    fn a_night_in_which_clocks_change_has_each_time_once() {
        let berlin = Some("Europe/Berlin");
        let new_york = Some("America/New_York");
        for (expression, zone, from, times) in [
            // 03:00 becomes 02:00, and 02:00 in the spring 03:00.
            (
                "30 1 * * *",
                berlin,
                "2026-10-24T22:00:00Z",
                ["2026-10-24T23:30:00Z", "2026-10-26T00:30:00Z"],
            ),
            (
                "30 2 * * *",
                berlin,
                "2026-10-24T22:00:00Z",
                ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
            ),
            (
                "30 1 * * *",
                berlin,
                "2026-03-28T23:00:00Z",
                ["2026-03-29T00:30:00Z", "2026-03-29T23:30:00Z"],
            ),
            (
                "30 2 * * *",
                berlin,
                "2026-03-28T23:00:00Z",
                ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
            ),
            // 02:00 becomes 01:00, and 02:00 in the spring 03:00.
            (
                "30 1 * * *",
                new_york,
                "2026-11-01T04:00:00Z",
                ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
            ),
            (
                "30 1 * * *",
                new_york,
                "2026-03-08T05:00:00Z",
                ["2026-03-08T06:30:00Z", "2026-03-09T05:30:00Z"],
            ),
            (
                "30 2 * * *",
                new_york,
                "2026-03-08T05:00:00Z",
                ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
            ),
            // Several times in an hour follow the clock.
            (
                "*/30 * * * *",
                new_york,
                "2026-11-01T05:10:00Z",
                ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z"],
            ),
            (
                "0 9 * * 1-5",
                None,
                "2026-11-27T09:00:00Z",
                ["2026-11-30T09:00:00Z", "2026-12-01T09:00:00Z"],
            ),
        ] {
            let (schedule, mut after) = (cron(expression, zone), at(from));
            for time in times.map(at) {
                assert_eq!(
                    schedule.next(after, after),
                    Some(time),
                    "{expression} {zone:?} {after}"
                );
                after = time;
                for later in [0, 59] {
                    let upto = time + TimeDelta::seconds(later);
                    assert_eq!(schedule.last(upto, upto), Some(time), "{expression} {zone:?}");
                }
            }
        }
    }

    #[test]
    fn an_interval_counts_from_its_beginning() {
        let schedule = AgentSchedule::Interval { seconds: 90 }.times().expect("it is on");
        let since = at("2026-01-01T00:00:00Z");
        let after = |secs| since + TimeDelta::seconds(secs);
        for (from, next, last) in
            [(0, 90, None), (89, 90, None), (90, 180, Some(90)), (1_000, 1_080, Some(990))]
        {
            assert_eq!(schedule.next(since, after(from)), Some(after(next)));
            assert_eq!(schedule.last(since, after(from)), last.map(after));
        }
    }

    #[test]
    fn what_is_off_or_never_comes_has_no_time() {
        let off = AgentSchedule::Cron {
            cron: "0 9 * * *".to_owned(),
            timezone: None,
            enabled: Some(false),
        };
        assert!(off.times().is_none() && AgentSchedule::Manual {}.times().is_none());
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(cron("0 0 30 2 *", Some("Europe/Berlin")).next(now, now), None);
    }
}
