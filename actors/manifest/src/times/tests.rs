//! Times beside those of PyPI's cronsim, which `tests/clients/cron_times.py` writes.

use std::{fs, path::Path};

use super::*;

/// Names the folder of `times.json`. A daemon would take it for a key of its configuration, so it is set for this
/// crate's tests alone.
const CRONSIM: &str = "HIVEKEEP_CRONSIM";

fn at(text: &str) -> DateTime<Utc> {
    format!("{text}:00Z").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Nights in which clocks change, with the times of an expression from one on.
#[test]
fn a_night_in_which_clocks_change_has_each_time_as_it_should() {
    let (berlin, york) = ("Europe/Berlin", "America/New_York");
    let (howe, paulo) = ("Australia/Lord_Howe", "America/Sao_Paulo");
    for (expression, zone, from, times) in [
        // Twice on the clock, once.
        ("30 2 * * *", berlin, "2026-10-24T22:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("0 1,2 * * *", berlin, "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-26T00:00"]),
        ("30 1 * * *", york, "2026-11-01T04:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        ("45 1 * * *", howe, "2026-04-04T12:00", ["2026-04-04T14:45", "2026-04-05T15:15"]),
        ("30 23 * * *", paulo, "2018-02-17T12:00", ["2018-02-18T01:30", "2018-02-19T02:30"]),
        // Never on the clock, at the first minute behind.
        ("30 2 * * *", berlin, "2026-03-28T23:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("0,30 2 * * *", berlin, "2026-03-28T23:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("15 2 * * *", howe, "2026-10-03T12:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        ("0 0 * * *", paulo, "2018-11-03T12:00", ["2018-11-04T03:00", "2018-11-05T02:00"]),
        // Whenever the clock shows it.
        ("*/30 1 * * *", york, "2026-11-01T05:10", ["2026-11-01T05:30", "2026-11-01T06:00"]),
        ("0 * * * *", york, "2026-11-01T05:30", ["2026-11-01T06:00", "2026-11-01T07:00"]),
        ("*/30 2 * * *", berlin, "2026-03-28T23:00", ["2026-03-30T00:00", "2026-03-30T00:30"]),
        ("@hourly", "Asia/Kathmandu", "2026-03-28T23:00", ["2026-03-28T23:15", "2026-03-29T00:15"]),
        ("@daily", "UTC", "2026-03-28T23:00", ["2026-03-29T00:00", "2026-03-30T00:00"]),
    ] {
        let whole = format!("CRON_TZ={zone} {expression}");
        let (schedule, mut after) = (CronTimes::parse(&whole, Tz::UTC).expect(&whole), at(from));
        for time in times.map(at) {
            assert_eq!(schedule.next(after), Some(time), "{whole} after {after}");
            after = time;
            for later in [0, 59] {
                let upto = time + TimeDelta::seconds(later);
                assert_eq!(schedule.last(upto), Some(time), "{whole} up to {upto}");
            }
        }
    }
}

#[test]
fn what_is_no_expression_is_refused_in_words() {
    for (expression, why) in [
        ("* * * *", "five fields, and this one 4"),
        ("61 * * * *", "not a valid cron expression"),
        ("@never", "five fields, and this one 1"),
        ("CRON_TZ=Europe/Berlln 0 0 * * *", "no time zone `Europe/Berlln`"),
        ("CRON_TZ=UTC", "five fields, and this one 0"),
    ] {
        let refused = CronTimes::parse(expression, Tz::UTC).expect_err(expression);
        assert!(refused.contains(why), "{refused}");
    }
    let never = CronTimes::parse("0 0 30 2 *", Tz::Europe__Berlin).expect("it is one");
    assert_eq!(
        (never.next(at("2026-01-01T00:00")), never.last(at("2026-01-01T00:00"))),
        (None, None)
    );
}

/// A row of the file: zone, expression, beginning, end, and times of between in Unix minutes.
type Row = (String, String, i64, i64, Vec<i64>);

/// Zone whose clocks change by half an hour. There cronsim leaves times out of an hour of the day behind a change, for
/// it goes from hour to hour by 60 minutes; so each minute is looked at instead.
const HALF_HOURS: Tz = Tz::Australia__Lord_Howe;

/// Minutes at which the clock shows a time of an expression that is not fixed.
fn shown(schedule: &CronTimes, from: DateTime<Utc>, upto: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let next = |minute: &DateTime<Utc>| Some(*minute + MINUTE);
    let minutes = std::iter::successors(next(&from), next).take_while(|minute| *minute <= upto);
    let is_shown = |minute: &DateTime<Utc>| {
        let clock = minute.with_timezone(&schedule.zone).naive_local();
        schedule.cron.is_time_matching(&clock.and_utc()).expect("a time")
    };
    minutes.filter(is_shown).collect()
}

#[test]
fn a_year_has_the_times_of_cronsim() {
    let Some(folder) = std::env::var_os(CRONSIM) else {
        return hivekeep_skip::skip(format_args!("{CRONSIM} names no folder with times.json"));
    };
    let rows = fs::read(Path::new(&folder).join("times.json")).expect("times.json");
    let rows: Vec<Row> = serde_json::from_slice(&rows).expect("rows");
    let minute = |minutes: i64| DateTime::from_timestamp(60 * minutes, 0).expect("a time");
    let (mut wrong, mut left_out) = (Vec::new(), 0);
    for (zone, expression, from, upto, wanted) in &rows {
        let zone: Tz = zone.parse().expect("a zone");
        let (from, upto) = (minute(*from), minute(*upto));
        let schedule = CronTimes::parse(expression, zone).expect(expression);
        let next = |after: &DateTime<Utc>| schedule.next(*after);
        let times = std::iter::successors(next(&from), next).take_while(|time| *time <= upto);
        let times: Vec<_> = times.collect();
        let mut wanted: Vec<_> = wanted.iter().map(|time| minute(*time)).collect();
        if times != wanted && zone == HALF_HOURS && !schedule.is_fixed {
            left_out += 1;
            wanted = shown(&schedule, from, upto);
        }
        let told = format!("{zone} {expression} from {from}");
        if times != wanted {
            let first = times.iter().zip(&wanted).find(|(ours, theirs)| ours != theirs);
            wrong.push(format!("{told}: {} and {}, {first:?}", times.len(), wanted.len()));
        } else if !wanted.is_empty() && schedule.last(upto) != wanted.last().copied() {
            wrong.push(format!("{told}: another last one"));
        }
    }
    println!(
        "{} rows differ of {}, cronsim leaves times out of {left_out}",
        wrong.len(),
        rows.len()
    );
    assert!(wrong.is_empty(), "{:#?}", wrong.iter().take(40).collect::<Vec<_>>());
}
