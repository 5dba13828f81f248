//! DAG: steps with their dependencies as plain data, in the YAML that people write, and when it runs by
//! itself.

mod commands;
mod graph;
pub mod reference;
mod rules;
mod step;
mod values;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    common::{JsonObject, TimeSpan, check_cron},
    problems::{ManifestPath, ProblemList},
};

pub(crate) use rules::check;
pub use step::{
    BoundedParallel, ContainerStartup, ContainerWaitFor, DagApproval, DagContainer,
    DagContainerSpec, DagExec, DagGroupEntry, DagHandlers, DagParallel, DagStep, DagStepEntry,
    DagSteps, PullPolicy,
};
pub use values::{
    ContinueOn, ContinueOnDetail, ContinueOnRule, DagBackoff, DagEnv, DagEnvItem, DagLabels,
    DagOutput, DagParam, DagParams, DagPrecondition, DagPreconditionItem, DagPreconditions,
    DagRetryPolicy, DagScalar, DagStatusCodes, OneOrMore, Repeat, RepeatMode, RepeatPolicy,
    StepRetryPolicy,
};

/// DAG: what a run does, in which order, and what happens at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagManifest {
    /// Name: at most 40 letters, digits, `_`, `.` and `-`. Default: the file's name without its ending.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,40}$"))]
    pub name: Option<String>,
    /// Purpose of the DAG, for people.
    pub description: Option<String>,
    /// Group that the DAG is listed in.
    pub group: Option<String>,
    /// Labels to find the DAG by.
    pub labels: Option<DagLabels>,
    /// The same as `labels`.
    pub tags: Option<DagLabels>,
    /// `chain`: each step follows the one before. `graph`: steps say what they follow. Default: `chain`.
    #[serde(rename = "type")]
    pub dag_type: Option<DagType>,
    /// Parameters of a run: a text, a list, a mapping with defaults, or a JSON Schema.
    pub params: Option<DagParams>,
    /// Environment of the steps.
    pub env: Option<DagEnv>,
    /// Files with further environment.
    pub dotenv: Option<OneOrMore>,
    /// References of secrets that become environment.
    pub secrets: Option<Vec<JsonObject>>,
    /// Folder that steps run in.
    pub working_dir: Option<String>,
    /// Shell that commands go through, with its arguments.
    pub shell: Option<OneOrMore>,
    /// Cron expressions of the times at which a run starts by itself.
    pub schedule: Option<DagSchedule>,
    /// True to leave out a scheduled run after a success since the last one.
    pub skip_if_successful: Option<bool>,
    /// How far back missed runs are made up for, as `6h`.
    pub catchup_window: Option<TimeSpan>,
    /// Rule for a scheduled run that is due while another one runs. Default: `skip`.
    pub overlap_policy: Option<OverlapPolicy>,
    /// Conditions of a run.
    pub preconditions: Option<DagPreconditions>,
    /// Steps of a run.
    pub steps: DagSteps,
    /// Steps at the beginning and at the end of a run.
    pub handler_on: Option<DagHandlers>,
    /// Fields that every step has unless it says otherwise.
    pub defaults: Option<JsonObject>,
    /// Attempts of the whole after a failure.
    pub retry_policy: Option<DagRetryPolicy>,
    /// Queue that runs wait in. Default: one of its own, a run at a time.
    pub queue: Option<String>,
    /// Steps at a time; 0 is without a limit.
    pub max_active_steps: Option<u64>,
    /// Deprecated, and without effect: give it a `queue`.
    pub max_active_runs: Option<i64>,
    /// Longest run in seconds; 0 is without a limit.
    pub timeout_sec: Option<u64>,
    /// Pause before the first step in seconds.
    pub delay_sec: Option<u64>,
    /// Pause before a restart in seconds.
    pub restart_wait_sec: Option<u64>,
    /// Time between the request to stop and the end by force in seconds. Default: 5.
    pub max_clean_up_time_sec: Option<u64>,
    /// Largest output of a step that is kept as a value, in bytes. Default: 1 MiB.
    pub max_output_size: Option<u64>,
    /// Days that runs are kept. Default: 30. Not with `hist_retention_runs`.
    pub hist_retention_days: Option<i64>,
    /// Number of runs that are kept. Not with `hist_retention_days`.
    pub hist_retention_runs: Option<u64>,
    /// Folder of the logs.
    pub log_dir: Option<String>,
    /// Whether the two streams of a step have a log each. Default: `separate`.
    pub log_output: Option<LogOutput>,
    /// Settings of the files that a run leaves.
    pub artifacts: Option<Value>,
    /// Container that all steps run in.
    pub container: Option<DagContainer>,
    /// Settings that may be changed when a run is started.
    pub run_config: Option<JsonObject>,
    /// Requests that start a run.
    pub webhook: Option<JsonObject>,
    /// Types of steps by name, made of others.
    pub step_types: Option<JsonObject>,
    /// Ends of a run that a mail tells.
    pub mail_on: Option<JsonObject>,
    /// Mail of a failure.
    pub error_mail: Option<JsonObject>,
    /// Mail of a success.
    pub info_mail: Option<JsonObject>,
    /// Mail server.
    pub smtp: Option<JsonObject>,
    /// Labels of the machines that may run the DAG.
    pub worker_selector: Option<JsonObject>,
    /// Traces.
    pub otel: Option<JsonObject>,
    /// Defaults of the steps of type `ssh`.
    pub ssh: Option<JsonObject>,
    /// Defaults of the steps of type `s3`.
    pub s3: Option<JsonObject>,
    /// Defaults of the steps of type `redis`.
    pub redis: Option<JsonObject>,
    /// Defaults of the steps that ask a model.
    pub llm: Option<JsonObject>,
    /// Defaults of the steps of type `harness`.
    pub harness: Option<JsonObject>,
    /// Defaults of the steps of type `kubernetes`.
    pub kubernetes: Option<JsonObject>,
    /// Logins of image registries, by server.
    pub registry_auths: Option<JsonObject>,
}

/// How steps depend on each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagType {
    /// Each step follows the one before.
    #[default]
    Chain,
    /// Steps say what they follow.
    Graph,
}

/// Rule for a scheduled run that is due while another one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlapPolicy {
    /// The due run is left out.
    Skip,
    /// Every due run waits.
    All,
    /// The latest due run waits.
    Latest,
}

/// Whether the streams of a step have a log each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogOutput {
    /// A log for each stream.
    Separate,
    /// A log that both streams share.
    Merged,
}

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

/// Checks the expressions and times of a schedule.
fn check_schedule(schedule: &DagSchedule, at: &ManifestPath, problems: &mut ProblemList<'_>) {
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
    check_cron(plain, at, problems);
}
