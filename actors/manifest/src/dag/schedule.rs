//! Times at which a DAG runs by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    common::check_cron,
    problems::{ManifestPath, ProblemList},
};

/// Most entries of a list of times.
const MOST_TIMES: usize = 100;

/// Schedule: a cron expression, a list, or times to start, stop and restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagSchedule {
    /// Cron expression of five fields; `CRON_TZ=Europe/Berlin` in front names a time zone.
    One(String),
    /// Several expressions, and single times.
    More(Vec<ScheduleItem>),
    /// Times by what is done at them.
    Actions(Box<ScheduleActions>),
}

/// Single time, or times that come again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScheduleItem {
    /// Cron expression.
    Cron(String),
    /// Cron expression with its settings.
    Entry(ScheduleEntry),
    /// Single time.
    At(ScheduleAt),
}

/// Cron expression with its settings.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEntry {
    /// Cron expression of five fields.
    pub expression: String,
    /// `cron`.
    #[schemars(regex(pattern = "^cron$"))]
    pub kind: Option<String>,
    /// Profile of the runs.
    pub profile: Option<String>,
}

/// Single time to start.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleAt {
    /// Time in the form of RFC 3339, as `2030-01-31T09:00:00+01:00`.
    pub at: String,
    /// `at`.
    #[schemars(regex(pattern = "^at$"))]
    pub kind: Option<String>,
    /// Profile of the run.
    pub profile: Option<String>,
}

/// Times to start, stop and restart.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleActions {
    /// Times to start.
    pub start: Option<ScheduleTimes>,
    /// Times to stop, which come again.
    pub stop: Option<ScheduleTimes>,
    /// Times to restart, which come again.
    pub restart: Option<ScheduleTimes>,
}

/// A time, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScheduleTimes {
    /// One.
    One(ScheduleItem),
    /// Several.
    More(Vec<ScheduleItem>),
}

/// Checks the expressions and times of a schedule.
pub(super) fn check_schedule(
    schedule: &DagSchedule,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    match schedule {
        DagSchedule::One(expression) => check_cron(expression, at, problems),
        DagSchedule::More(list) => items(list, true, at, problems),
        DagSchedule::Actions(actions) => {
            let ScheduleActions { start, stop, restart } = &**actions;
            for (key, times) in [("start", start), ("stop", stop), ("restart", restart)] {
                let (starts, at) = (key == "start", at.join(key));
                match times {
                    Some(ScheduleTimes::One(one)) => item(one, starts, &at, problems),
                    Some(ScheduleTimes::More(list)) => items(list, starts, &at, problems),
                    None => {}
                }
            }
        }
    }
}

fn items(list: &[ScheduleItem], starts: bool, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if list.len() > MOST_TIMES {
        problems.add(at, format!("has {} entries, at most {MOST_TIMES}", list.len()));
    }
    for (index, one) in list.iter().enumerate() {
        item(one, starts, &at.join(index), problems);
    }
}

fn item(item: &ScheduleItem, starts: bool, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    match item {
        ScheduleItem::Cron(expression) => check_cron(expression, at, problems),
        ScheduleItem::Entry(entry) => {
            check_cron(&entry.expression, &at.join("expression"), problems);
        }
        ScheduleItem::At(_) if !starts => {
            problems.add(at, "a single time begins a run: write a cron expression");
        }
        ScheduleItem::At(time) => once(time, at, problems),
    }
}

fn once(time: &ScheduleAt, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if chrono::DateTime::parse_from_rfc3339(&time.at).is_err() {
        problems.add(&at.join("at"), "is not a time of RFC 3339, as `2030-01-31T09:00:00Z`");
    }
}
