//! Times of a cron expression by the clocks of a time zone, as cron of Debian has them.
//!
//! An expression is fixed unless its minute or its hour begins with `*`. A fixed one runs once at each of its times:
//! at the first of two where clocks go back, and at the first minute behind the gap where they go forward over it. Any
//! other one runs whenever the clock shows one of its times. Day and weekday both have to match where one of them
//! begins with `*`; otherwise one of them is enough.

use chrono::{
    DateTime, NaiveDateTime, Offset as _, SubsecRound as _, TimeDelta, TimeZone as _, Utc,
};
use chrono_tz::Tz;
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

/// Names of expressions.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Longest time by which clocks go back.
const LONGEST_FOLD: TimeDelta = TimeDelta::hours(3);
/// Longest time that clocks leave out, in minutes: a day.
const LONGEST_GAP_MINUTES: i64 = 24 * 60;
/// Time span that a last time is looked for in.
const FARTHEST: TimeDelta = TimeDelta::days(10 * 366);
const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// See the module.
#[derive(Debug, Clone)]
pub struct CronTimes {
    cron: Box<Cron>,
    zone: Tz,
    is_fixed: bool,
}

impl CronTimes {
    /// Parses an expression of five fields, or a name such as `@daily`. `CRON_TZ=Europe/Berlin` in front of it is
    /// another time zone than `zone`.
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub fn parse(expression: &str, zone: Tz) -> Result<Self, String> {
        let zoned = expression.strip_prefix("CRON_TZ=").or_else(|| expression.strip_prefix("TZ="));
        let (zone, plain) = match zoned.map(|rest| rest.split_once(' ').unwrap_or((rest, ""))) {
            None => (zone, expression),
            Some((name, rest)) => {
                let zone =
                    name.parse().map_err(|_| format!("there is no time zone `{name:.40}`"))?;
                (zone, rest)
            }
        };
        let named = NICKNAMES.iter().find(|(name, _)| *name == plain.trim());
        let plain = named.map_or(plain, |(_, meant)| meant);
        let fields: Vec<&str> = plain.split_whitespace().collect();
        let [minute, hour, day, _, weekday] = fields[..] else {
            let count = fields.len();
            return Err(format!("a cron expression has five fields, and this one {count}"));
        };
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(day.starts_with('*') || weekday.starts_with('*'))
            .build();
        let cron = parser.parse(plain);
        let cron = cron.map_err(|error| format!("is not a valid cron expression: {error}"))?;
        let is_fixed = !minute.starts_with('*') && !hour.starts_with('*');
        Ok(Self { cron: Box::new(cron), zone, is_fixed })
    }

    /// First time after one.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (here, later) = (after.with_timezone(&self.zone), after + LONGEST_FOLD);
        let offset = |time: &DateTime<Tz>| time.offset().fix().local_minus_utc();
        let goes_back = offset(&later.with_timezone(&self.zone)) < offset(&here);
        let shown = here.naive_local().trunc_subsecs(0);
        let mut clock = if goes_back { shown - LONGEST_FOLD } else { shown };
        let mut first: Option<DateTime<Utc>> = None;
        // Readings up to the one that is shown may come again; of those behind it the first that comes is enough.
        while let Ok(next) = self.cron.find_next_occurrence(&clock.and_utc(), false) {
            clock = next.naive_utc();
            let at = self.comes(clock).into_iter().flatten().filter(|at| *at > after).min();
            first = first.into_iter().chain(at).min();
            if clock > shown && at.is_some() {
                break;
            }
        }
        first
    }

    /// Last time up to one.
    pub fn last(&self, upto: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let comes_after = |from| self.next(from).is_some_and(|next| next <= upto);
        let mut back = MINUTE;
        while !comes_after(upto - back) {
            back = if back < FARTHEST { back * 2 } else { return None };
        }
        let (mut from, mut end) = (upto - back, upto);
        while end - from > MINUTE {
            let middle = from + (end - from) / 2;
            *(if comes_after(middle) { &mut from } else { &mut end }) = middle;
        }
        self.next(from)
    }

    /// Times at which it runs for a reading of the clock.
    fn comes(&self, clock: NaiveDateTime) -> [Option<DateTime<Utc>>; 2] {
        let utc = |time: DateTime<Tz>| time.with_timezone(&Utc);
        let shown = self.zone.from_local_datetime(&clock);
        if !self.is_fixed {
            return [shown.earliest().map(utc), shown.latest().map(utc)];
        }
        let behind = |minutes| {
            self.zone.from_local_datetime(&(clock + TimeDelta::minutes(minutes))).earliest()
        };
        [(0..=LONGEST_GAP_MINUTES).find_map(behind).map(utc), None]
    }
}

#[cfg(test)]
mod tests;
