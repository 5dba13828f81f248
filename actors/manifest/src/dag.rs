//! DAG: steps with their dependencies as plain data, in the YAML that people write, and when it runs by
//! itself.

pub mod action;
mod commands;
mod form;
mod graph;
mod notices;
mod output;
mod params;
pub mod reference;
mod root;
mod rules;
mod schedule;
mod step;
mod step_rules;
mod times;
mod values;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::{
    agent::AgentDelivery,
    common::{JsonObject, TimeSpan},
};

pub use form::{DagForm, DagFormField};
pub(crate) use notices::notices;
pub use notices::{DagNotice, NoticeClass};
pub use output::{
    DagDeclaredOutput, DagDeclaredType, DagOutput, DagOutputForm, DagOutputLiteral,
    DagOutputOrigin, DagOutputSource, DagOutputValue, DagStream, DagStreamDetail, DagStreamFields,
    DagStreamOutputs,
};
pub use params::{DagConst, DagParam, DagParamSpec, DagParamType, DagParams};
pub use root::{
    DagCustomAction, DagHarness, DagModel, DagModelEntry, DagModels, DagPrograms, DagPromptMode,
    DagResourceLimits, DagResources, DagSecret, DagTask,
};
pub(crate) use rules::check;
pub use schedule::{
    DagSchedule, ScheduleActions, ScheduleAt, ScheduleEntry, ScheduleItem, ScheduleTimes,
};
pub use step::{
    BoundedParallel, ContainerStartup, ContainerWaitFor, DagApproval, DagContainer,
    DagContainerSpec, DagDepends, DagExec, DagForeach, DagGroupEntry, DagHandlers, DagItems,
    DagParallel, DagPull, DagRun, DagRunLine, DagStep, DagStepEntry, DagSteps, PullPolicy,
};
pub use times::{DagTimes, ScheduledAction};
pub use values::{
    ContinueOn, ContinueOnDetail, ContinueOnRule, DagBackoff, DagCount, DagEnv, DagEnvItem,
    DagLabel, DagLabels, DagPrecondition, DagPreconditionItem, DagPreconditions, DagRetryPolicy,
    DagScalar, DagStatusCodes, OneOrMore, Repeat, RepeatMode, RepeatPolicy, StepRetryPolicy,
};

/// DAG: what a run does, in which order, and what happens at its end.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// `chain`: each step follows the one before. `graph`: steps say what they follow. `agent`: a model
    /// chooses them. Default: `graph`, and `chain` where all steps are written in the old notation.
    #[serde(rename = "type")]
    pub dag_type: Option<DagType>,
    /// Goals of a DAG of type `agent`.
    pub tasks: Option<Vec<DagTask>>,
    /// Parameters of a run: a text, a list, a mapping with defaults, or a JSON Schema.
    pub params: Option<DagParams>,
    /// Constants in order, each `- name: value`; a text may name those before it.
    pub consts: Option<Vec<DagConst>>,
    /// Environment of the steps.
    pub env: Option<DagEnv>,
    /// Files with further environment.
    pub dotenv: Option<OneOrMore>,
    /// References of secrets that become environment.
    pub secrets: Option<Vec<DagSecret>>,
    /// Programs that steps need.
    pub tools: Option<DagPrograms>,
    /// Folder that steps run in.
    pub working_dir: Option<String>,
    /// Shell that commands go through, with its arguments.
    pub shell: Option<OneOrMore>,
    /// Further arguments of the shell.
    pub shell_args: Option<Vec<String>>,
    /// Cron expressions of the times at which a run starts by itself, in UTC unless `CRON_TZ=` names a time zone. Of a
    /// file in a watched folder.
    pub schedule: Option<DagSchedule>,
    /// True to leave out a scheduled run after another one since the last scheduled time succeeded.
    pub skip_if_successful: Option<bool>,
    /// How far back missed runs are made up for, as `6h`. Default: missed ones are left out.
    pub catchup_window: Option<TimeSpan>,
    /// Rule for a scheduled run that is due while another one runs. Default: `skip`.
    pub overlap_policy: Option<OverlapPolicy>,
    /// Conditions of a run.
    pub preconditions: Option<DagPreconditions>,
    /// Steps of a run.
    pub steps: DagSteps,
    /// Steps at the beginning and at the end of a run.
    pub handler_on: Option<Box<DagHandlers>>,
    /// Fields that every step has unless it says otherwise.
    pub defaults: Option<Box<DagStep>>,
    /// Attempts of the whole after a failure.
    pub retry_policy: Option<DagRetryPolicy>,
    /// Queue that runs wait in for their place; one that is not configured has a place. Default: none.
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
    /// Days that runs are kept after their end; 0 is the operator's (`workflow.kept_days`), less is without a limit. Not
    /// with `hist_retention_runs`.
    pub hist_retention_days: Option<i64>,
    /// Number of runs that are kept, whatever their age. Not with `hist_retention_days`.
    pub hist_retention_runs: Option<u64>,
    /// Folder of the logs.
    pub log_dir: Option<String>,
    /// Whether the two streams of a step have a log each. Default: `separate`.
    pub log_output: Option<LogOutput>,
    /// Settings of the files that a run leaves.
    pub artifacts: Option<Value>,
    /// Container that all steps run in.
    pub container: Option<DagContainer>,
    /// Limits of the steps.
    pub resources: Option<DagResources>,
    /// Settings that may be changed when a run is started.
    pub run_config: Option<JsonObject>,
    /// Requests that start a run.
    pub webhook: Option<JsonObject>,
    /// Actions by name, made of others.
    pub actions: Option<BTreeMap<String, DagCustomAction>>,
    /// Types of steps by name, made of others; the former `actions`.
    pub step_types: Option<JsonObject>,
    /// Receivers of the end of a run, as those of an agent's result; texts of theirs refer to values as those of steps
    /// do.
    pub delivery: Option<AgentDelivery>,
    /// Ends of a run that a mail tells.
    pub mail_on: Option<JsonObject>,
    /// Mail of a failure.
    pub error_mail: Option<JsonObject>,
    /// Mail of a success.
    pub info_mail: Option<JsonObject>,
    /// Mail server.
    pub smtp: Option<JsonObject>,
    /// Labels of the machines that may run the DAG.
    pub worker_selector: Option<Value>,
    /// Traces.
    pub otel: Option<JsonObject>,
    /// Defaults of the steps of type `ssh`.
    pub ssh: Option<JsonObject>,
    /// Defaults of the steps of type `s3`.
    pub s3: Option<JsonObject>,
    /// Defaults of the steps of type `redis`.
    pub redis: Option<JsonObject>,
    /// Model of an agent, or defaults of the steps that ask one.
    pub llm: Option<DagModel>,
    /// Defaults of the steps with `harness.run`: `provider`, `model`, `fallback` and flags.
    pub harness: Option<JsonObject>,
    /// Programs by the name that `harness.run` has as its `provider`; nothing takes a definition back.
    pub harnesses: Option<BTreeMap<String, Option<DagHarness>>>,
    /// Defaults of the steps of type `kubernetes`.
    pub kubernetes: Option<JsonObject>,
    /// Logins of image registries, by server.
    pub registry_auths: Option<Value>,
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
    /// A model chooses the steps until the goals are reached.
    Agent,
    /// Former name of `agent`.
    Controller,
    /// Steps follow the files that they read.
    Build,
}

impl DagManifest {
    /// How the steps depend on each other: `Chain`, `Graph` or `Agent` of a DAG that is valid.
    pub fn order(&self) -> DagType {
        match self.dag_type {
            Some(DagType::Controller) => DagType::Agent,
            Some(order) => order,
            None if self.is_todays() => DagType::Graph,
            None => DagType::Chain,
        }
    }

    /// True if a step is written in the notation of today: with `run`, `action`, `foreach` or `outputs`.
    pub fn is_todays(&self) -> bool {
        let entries = match &self.steps {
            DagSteps::List(entries) => entries,
            DagSteps::Map(steps) => return steps.values().any(DagStep::is_todays),
        };
        entries.iter().any(|entry| match entry {
            DagStepEntry::Command(_) => false,
            DagStepEntry::Step(step) => step.is_todays(),
            DagStepEntry::Group(group) => group.iter().any(|entry| match entry {
                DagGroupEntry::Command(_) => false,
                DagGroupEntry::Step(step) => step.is_todays(),
            }),
        })
    }
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

/// True for a word of a list with blanks between.
fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}
