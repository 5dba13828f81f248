//! Times of a DAG's schedule, and what is done at them.

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::{DagSchedule, ScheduleEntry, ScheduleItem, ScheduleTimes};
use crate::times::CronTimes;

/// Work at a time of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduledAction {
    /// Begins a run.
    Start,
    /// Stops the runs that there are.
    Stop,
    /// Stops the runs that there are, and begins one.
    Restart,
}

/// Times of a schedule. Entries of a profile have none.
#[derive(Debug, Clone)]
pub struct DagTimes(Vec<(ScheduledAction, ScheduledTime)>);

#[derive(Debug, Clone)]
enum ScheduledTime {
    Again(CronTimes),
    Once(DateTime<Utc>),
}

impl ScheduledTime {
    fn of(item: &ScheduleItem) -> Option<Self> {
        let again = |cron: &str| CronTimes::parse(cron, Tz::UTC).ok().map(Self::Again);
        match item {
            ScheduleItem::Cron(cron) => again(cron),
            ScheduleItem::Entry(ScheduleEntry { profile: Some(_), .. }) => None,
            ScheduleItem::Entry(entry) => again(&entry.expression),
            ScheduleItem::At(single) if single.profile.is_some() => None,
            ScheduleItem::At(single) => {
                let at = DateTime::parse_from_rfc3339(&single.at).ok()?;
                Some(Self::Once(at.with_timezone(&Utc)))
            }
        }
    }

    fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Again(times) => times.next(after),
            Self::Once(at) => Some(*at).filter(|at| *at > after),
        }
    }

    fn last(&self, upto: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Again(times) => times.last(upto),
            Self::Once(at) => Some(*at).filter(|at| *at <= upto),
        }
    }
}

impl DagSchedule {
    /// Its times, in UTC where an expression names no time zone.
    pub fn times(&self) -> DagTimes {
        let list = |action, items: &[ScheduleItem]| {
            let times = items.iter().filter_map(ScheduledTime::of);
            times.map(|time| (action, time)).collect::<Vec<_>>()
        };
        let some = |action, times: &Option<ScheduleTimes>| match times {
            Some(ScheduleTimes::One(one)) => list(action, std::slice::from_ref(one)),
            Some(ScheduleTimes::More(more)) => list(action, more),
            None => Vec::new(),
        };
        DagTimes(match self {
            Self::One(cron) => list(ScheduledAction::Start, &[ScheduleItem::Cron(cron.clone())]),
            Self::More(items) => list(ScheduledAction::Start, items),
            Self::Actions(actions) => [
                some(ScheduledAction::Start, &actions.start),
                some(ScheduledAction::Stop, &actions.stop),
                some(ScheduledAction::Restart, &actions.restart),
            ]
            .concat(),
        })
    }
}

impl DagTimes {
    /// First time after one.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.0.iter().filter_map(|(_, time)| time.next(after)).min()
    }

    /// Last time up to one.
    pub fn last(&self, upto: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.0.iter().filter_map(|(_, time)| time.last(upto)).max()
    }

    /// First of the single times in a span, its ends among them.
    pub fn single(&self, from: DateTime<Utc>, upto: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let single = self.0.iter().filter_map(|(_, time)| match time {
            ScheduledTime::Once(at) => Some(*at).filter(|at| (from..=upto).contains(at)),
            ScheduledTime::Again(_) => None,
        });
        single.min()
    }

    /// Action at a time; `None` for a time that is not one of these.
    pub fn action(&self, time: DateTime<Utc>) -> Option<ScheduledAction> {
        let before = time - TimeDelta::seconds(1);
        let now = self.0.iter().filter(|(_, it)| it.next(before) == Some(time));
        now.map(|(action, _)| *action).reduce(|one, other| match one == other {
            true => one,
            false => ScheduledAction::Restart,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &str) -> DagTimes {
        let text = format!("schedule: {schedule}\nsteps: [{{ run: x }}]\n");
        let dag = crate::read_dag(&text, None).expect(schedule).documents.remove(0);
        dag.schedule.expect("a schedule").times()
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_schedule_has_the_times_of_all_its_entries_but_of_profiles() {
        use ScheduledAction::{Restart, Start, Stop};
        let from = at("2026-06-01T00:30:00Z");
        for (schedule, next, action) in [
            ("'CRON_TZ=Asia/Tokyo 0 12 * * *'", "2026-06-01T03:00:00Z", Start),
            ("['0 5 * * *', '0 4 * * *']", "2026-06-01T04:00:00Z", Start),
            ("[{expression: '0 1 * * *', profile: p}, '0 5 * * *']", "2026-06-01T05:00:00Z", Start),
            ("[{at: '2026-06-01T04:00:00+02:00'}, '0 5 * * *']", "2026-06-01T02:00:00Z", Start),
            ("{start: '0 5 * * *', stop: ['0 4 * * *']}", "2026-06-01T04:00:00Z", Stop),
            ("{start: '0 5 * * *', stop: '0 5 * * *'}", "2026-06-01T05:00:00Z", Restart),
            ("{restart: '0 5 * * *'}", "2026-06-01T05:00:00Z", Restart),
        ] {
            let (times, next) = (times(schedule), at(next));
            assert_eq!(times.next(from), Some(next), "{schedule}");
            assert_eq!(times.last(next), Some(next), "{schedule}");
            assert_eq!(times.action(next), Some(action), "{schedule}");
            assert_eq!(times.action(from), None, "{schedule}");
        }
        let single = times("[{at: '2026-06-01T04:00:00Z'}, '0 5 * * *']");
        let hour = |hour: i64| from + TimeDelta::minutes(60 * hour - 30);
        assert_eq!(single.single(hour(1), hour(9)), Some(hour(4)));
        assert_eq!(single.single(hour(5), hour(9)), None);
    }
}
