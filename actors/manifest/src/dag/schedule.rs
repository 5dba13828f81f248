//! When a DAG runs by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::OneOrMore;
use crate::expressions;
use crate::path::ManifestPath;
use crate::problems::ProblemList;

/// Schedule: a cron expression, a list, or times to start, stop and restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagSchedule {
    /// Cron expression of five fields; `CRON_TZ=Europe/Berlin` in front names a time zone.
    One(String),
    /// Several, and single times.
    More(Vec<ScheduleItem>),
    /// By what is done.
    Actions(ScheduleActions),
}

/// Time to start, or a time that comes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScheduleItem {
    /// Cron expression.
    Cron(String),
    /// Single time.
    At(ScheduleAt),
}

/// Single time to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleAt {
    /// Time in the form of RFC 3339, as `2030-01-31T09:00:00+01:00`.
    pub at: String,
}

/// Times to start, stop and restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleActions {
    /// Times to start.
    pub start: Option<ScheduleTimes>,
    /// Cron expressions of the times to stop.
    pub stop: Option<OneOrMore>,
    /// Cron expressions of the times to restart.
    pub restart: Option<OneOrMore>,
}

/// Times to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScheduleTimes {
    /// Cron expression.
    One(String),
    /// Single time.
    At(ScheduleAt),
    /// Several.
    More(Vec<ScheduleItem>),
}

pub(super) fn check(schedule: &DagSchedule, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    match schedule {
        DagSchedule::One(expression) => cron(expression, at, problems),
        DagSchedule::More(list) => items(list, at, problems),
        DagSchedule::Actions(actions) => {
            match &actions.start {
                Some(ScheduleTimes::One(expression)) => {
                    cron(expression, &at.join("start"), problems)
                }
                Some(ScheduleTimes::At(time)) => once(time, &at.join("start"), problems),
                Some(ScheduleTimes::More(list)) => items(list, &at.join("start"), problems),
                None => {}
            }
            for (key, times) in [("stop", &actions.stop), ("restart", &actions.restart)] {
                for (index, expression) in times.iter().flat_map(|times| times.iter()).enumerate() {
                    cron(expression, &at.join(key).join(index), problems);
                }
            }
        }
    }
}

fn items(list: &[ScheduleItem], at: &ManifestPath, problems: &mut ProblemList<'_>) {
    for (index, item) in list.iter().enumerate() {
        match item {
            ScheduleItem::Cron(expression) => cron(expression, &at.join(index), problems),
            ScheduleItem::At(time) => once(time, &at.join(index), problems),
        }
    }
}

fn once(time: &ScheduleAt, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if chrono::DateTime::parse_from_rfc3339(&time.at).is_err() {
        problems.add(&at.join("at"), "is not a time of RFC 3339, as `2030-01-31T09:00:00Z`");
    }
}

fn cron(expression: &str, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let zoned = expression.strip_prefix("CRON_TZ=").or_else(|| expression.strip_prefix("TZ="));
    let plain = match zoned {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => expression,
    };
    expressions::cron(plain, at, problems);
}
