//! Steps of a DAG, with the containers that they run in, their calls of other DAGs, and approvals by
//! people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::{
    LogOutput,
    output::{DagDeclaredOutput, DagOutput, DagStream},
    params::DagParams,
    values::{
        ContinueOn, DagEnv, DagPreconditions, DagScalar, OneOrMore, RepeatPolicy, StepRetryPolicy,
    },
};
use crate::common::JsonObject;

/// Steps: a list in order, or a mapping by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagSteps {
    /// In order; a list within it is a group that runs side by side.
    List(Vec<DagStepEntry>),
    /// By name, in the order of the names.
    Map(BTreeMap<String, DagStep>),
}

impl Default for DagSteps {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// Entry of the list of steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagStepEntry {
    /// Command.
    Command(#[schemars(length(min = 1))] String),
    /// Step.
    Step(Box<DagStep>),
    /// Steps that run side by side.
    Group(Vec<DagGroupEntry>),
}

/// Step of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagGroupEntry {
    /// Command.
    Command(#[schemars(length(min = 1))] String),
    /// Step.
    Step(Box<DagStep>),
}

/// Step: what is done, when, and what its end means.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagStep {
    /// Id for references: a letter, then letters, digits and `_`, at most 40.
    #[schemars(regex(pattern = r"^\s*[A-Za-z][A-Za-z0-9_]{0,39}\s*$"))]
    pub id: Option<String>,
    /// Name, which no other step has; at most 255 bytes.
    pub name: Option<String>,
    /// Purpose of the step, for people.
    pub description: Option<String>,
    /// Command line, script of several lines, or lines that run in order until one fails.
    pub run: Option<DagRun>,
    /// Name of what is done: an action, one of `actions`, or a tool.
    #[schemars(length(min = 1, max = 200))]
    pub action: Option<String>,
    /// Steps that are run for each item.
    pub foreach: Option<DagForeach>,
    /// Command, or commands that run in order until one fails.
    pub command: Option<OneOrMore>,
    /// Program that runs without a shell.
    pub exec: Option<DagExec>,
    /// Script; its first line or `shell` says what runs it.
    pub script: Option<String>,
    /// Shell that commands go through, with its arguments.
    pub shell: Option<OneOrMore>,
    /// Further arguments of the shell.
    pub shell_args: Option<Vec<String>>,
    /// Packages that the shell needs.
    pub shell_packages: Option<Vec<String>>,
    /// Folder that the step runs in.
    pub working_dir: Option<String>,
    /// Environment.
    pub env: Option<DagEnv>,
    /// Names or ids of the steps that this one follows; for DAGs of type `graph`.
    pub depends: Option<DagDepends>,
    /// Files beside the DAG's that the step needs; `*` and `**` are patterns.
    pub dependencies: Option<OneOrMore>,
    /// Variable for the step's output, or values by name.
    pub output: Option<DagOutput>,
    /// JSON Schema of the step's output.
    pub output_schema: Option<JsonObject>,
    /// Outputs that the step writes to the file `DAGU_OUTPUT_FILE`, for `${steps.ID.outputs.NAME}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<DagDeclaredOutput>")]
    pub outputs: Option<Vec<DagDeclaredOutput>>,
    /// Files that the step reads, for DAGs of type `build`.
    pub inputs: Option<Vec<JsonObject>>,
    /// File for the step's standard output, an artifact, or outputs of the DAG.
    pub stdout: Option<DagStream>,
    /// File for the step's standard error, or an artifact.
    pub stderr: Option<DagStream>,
    /// Whether the two streams have a log each.
    pub log_output: Option<LogOutput>,
    /// Outcomes of this step after which later steps still run.
    pub continue_on: Option<ContinueOn>,
    /// Attempts after a failure.
    pub retry_policy: Option<StepRetryPolicy>,
    /// Condition and bounds of further runs of the step.
    pub repeat_policy: Option<RepeatPolicy>,
    /// Conditions; the step is left out where one does not hold.
    pub preconditions: Option<DagPreconditions>,
    /// Longest run in seconds.
    pub timeout_sec: Option<u64>,
    /// Signal that asks the step to stop. Default: `SIGTERM`.
    pub signal_on_stop: Option<String>,
    /// True to tell a failure by mail.
    pub mail_on_error: Option<bool>,
    /// Name of another DAG, in place of a command.
    pub call: Option<String>,
    /// Parameters of the called DAG.
    pub params: Option<DagParams>,
    /// Items that the DAG is called for, side by side.
    pub parallel: Option<DagParallel>,
    /// Container that the step runs in.
    pub container: Option<DagContainer>,
    /// True to run the step in a fork of the machine of the step before, which keeps what the step does to itself. On
    /// virtual machines.
    pub fork: Option<bool>,
    /// Type of the step. Default: `command`, unless other fields say more.
    #[serde(rename = "type")]
    pub step_type: Option<String>,
    /// Settings of the type.
    #[serde(rename = "with")]
    pub settings: Option<JsonObject>,
    /// The same as `with`.
    pub config: Option<JsonObject>,
    /// Approval by a person after the step has run.
    pub approval: Option<DagApproval>,
    /// Labels of the machines that may run the step.
    pub worker_selector: Option<Value>,
    /// Model, for steps that ask one.
    pub llm: Option<JsonObject>,
    /// Messages to the model.
    pub messages: Option<Vec<JsonObject>>,
    /// DAGs that a model can call, for steps that ask one.
    pub tools: Option<Vec<String>>,
    /// Agent, for steps that are one.
    pub agent: Option<JsonObject>,
    /// Value that a router compares.
    pub value: Option<DagScalar>,
    /// Steps of a router by the value; `re:` begins a regular expression.
    pub routes: Option<BTreeMap<String, OneOrMore>>,
}

impl DagStep {
    /// Id without blanks around it.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref().map(str::trim)
    }

    /// Name without blanks around it, or else the id.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().map(str::trim).filter(|name| !name.is_empty()).or(self.id())
    }

    /// True if the step is written in the notation of today.
    pub fn is_todays(&self) -> bool {
        let Self { run, action, foreach, outputs, .. } = self;
        run.is_some() || action.is_some() || foreach.is_some() || outputs.is_some()
    }
}

/// Text for a shell: a line, a script of several lines, or lines in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagRun {
    /// A line, or a script where it has several.
    Text(#[schemars(regex(pattern = r"\S"))] String),
    /// Lines; blank ones are left out.
    Lines(Vec<DagRunLine>),
}

/// Line of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagRunLine {
    /// Line.
    Line(DagScalar),
    /// Line that YAML reads as a mapping, since `: ` is in it.
    Pair(BTreeMap<String, DagScalar>),
}

impl DagRun {
    /// Lines in order without those that are blank, or the whole script.
    pub fn lines(&self) -> Vec<String> {
        let line = |line: &DagRunLine| match line {
            DagRunLine::Line(text) => vec![text.to_string()],
            DagRunLine::Pair(pair) => pair.iter().map(|(key, it)| format!("{key}: {it}")).collect(),
        };
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Lines(lines) => {
                let lines = lines.iter().flat_map(line);
                lines.filter(|line| !line.trim().is_empty()).collect()
            }
        }
    }
}

/// Name or id of a step, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagDepends {
    /// One.
    One(String),
    /// Several.
    More(Vec<DagScalar>),
}

impl DagDepends {
    /// Names in order.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name.clone()],
            Self::More(names) => names.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Steps that are run for each item.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagForeach {
    /// Items, or a text that becomes a JSON list.
    pub items: DagItems,
    /// Name of an item in `${foreach.NAME}`. Default: `item`.
    #[serde(rename = "as")]
    #[schemars(regex(pattern = "^[A-Za-z][A-Za-z0-9_]*$"))]
    pub item_name: Option<String>,
    /// Text that makes the key of an item, which no other item has. Default: the item's place, from 0.
    pub key: Option<String>,
    /// Items at a time. Default: 10.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: Option<u64>,
    /// Steps of an item.
    #[schemars(length(min = 1))]
    pub steps: Vec<DagStep>,
    /// Values by name that an item leaves.
    pub collect: Option<BTreeMap<String, String>>,
}

/// Items, or a text that becomes a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagItems {
    /// Text with references.
    Text(String),
    /// Items.
    List(Vec<Value>),
}

/// Program that runs without a shell.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagExec {
    /// Program.
    #[schemars(length(min = 1))]
    pub command: String,
    /// Arguments.
    pub args: Option<Vec<DagScalar>>,
}

/// Steps at the beginning and at the end of a run.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagHandlers {
    /// Before the steps.
    pub init: Option<DagStep>,
    /// After a success.
    pub success: Option<DagStep>,
    /// After a failure.
    pub failure: Option<DagStep>,
    /// After an abort.
    pub abort: Option<DagStep>,
    /// While a person is waited for.
    pub wait: Option<DagStep>,
    /// At the end, however it ended.
    pub exit: Option<DagStep>,
}

impl DagHandlers {
    /// Handlers that there are.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut DagStep> {
        let Self { init, success, failure, abort, wait, exit } = self;
        [init, success, failure, abort, wait, exit].into_iter().filter_map(Option::as_mut)
    }

    /// Handlers that there are, with their keys.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &DagStep)> {
        let Self { init, success, failure, abort, wait, exit } = self;
        let all = [
            ("init", init),
            ("success", success),
            ("failure", failure),
            ("abort", abort),
            ("wait", wait),
            ("exit", exit),
        ];
        all.into_iter().filter_map(|(key, step)| Some((key, step.as_ref()?)))
    }
}

/// Items that a DAG is called for: a variable that holds them, a list, or a list with a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParallel {
    /// Variable.
    Variable(String),
    /// Items.
    Items(Vec<Value>),
    /// With a bound.
    Bounded(BoundedParallel),
}

/// Items with a bound of calls at a time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundedParallel {
    /// Items, or the variable that holds them.
    pub items: DagItems,
    /// Calls at a time. Default: 10.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: Option<u64>,
}

/// Approval by a person after a step has run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagApproval {
    /// Question.
    pub prompt: Option<String>,
    /// Names of the values that are asked for.
    pub input: Option<Vec<String>>,
    /// Those of `input` that have to be given.
    pub required: Option<Vec<String>>,
    /// Step that a rejection goes back to: this one, or one before it.
    pub rewind_to: Option<String>,
}

/// Container: the name of one that runs, or a specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagContainer {
    /// Name of a container that runs.
    Running(#[schemars(length(min = 1))] String),
    /// Specification of a container, with its image and settings.
    Spec(Box<DagContainerSpec>),
}

/// Container: exactly one of `image` and `exec`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagContainerSpec {
    /// Name that the container is given.
    pub name: Option<String>,
    /// Reference of the image.
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// Name of a container that runs.
    #[schemars(length(min = 1))]
    pub exec: Option<String>,
    /// When the image is fetched. Default: `missing`.
    pub pull_policy: Option<DagPull>,
    /// Environment.
    pub env: Option<DagEnv>,
    /// Folders of the host, as `HOST:CONTAINER` with `:ro` or `:rw` behind.
    pub volumes: Option<Vec<String>>,
    /// Ports, as `HOST:CONTAINER`.
    pub ports: Option<Vec<String>>,
    /// Network.
    pub network: Option<String>,
    /// User.
    pub user: Option<String>,
    /// Folder that commands run in.
    pub working_dir: Option<String>,
    /// Platform, as `linux/amd64`.
    pub platform: Option<String>,
    /// Program that keeps the container running. Default: `keepalive`.
    pub startup: Option<ContainerStartup>,
    /// Program, where `startup` is `command`.
    pub command: Option<OneOrMore>,
    /// State of the container that steps wait for. Default: `running`.
    pub wait_for: Option<ContainerWaitFor>,
    /// Pattern in the container's log that steps wait for.
    pub log_pattern: Option<String>,
    /// Check that the container is well.
    pub healthcheck: Option<JsonObject>,
    /// Rule by which the container is started again.
    pub restart_policy: Option<String>,
    /// True to keep the container after the run.
    pub keep_container: Option<bool>,
    /// Shell that commands go through.
    pub shell: Option<OneOrMore>,
}

/// When an image of a DAG is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PullPolicy {
    /// Before each start.
    Always,
    /// Never.
    Never,
    /// When it is missing.
    Missing,
    /// Before each start, and the one that is there if that fails.
    Fallback,
}

/// When an image of a DAG is fetched, or whether it is fetched before each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagPull {
    /// True: before each start; false: never.
    Each(bool),
    /// By name.
    When(PullPolicy),
}

/// Program that keeps a container running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerStartup {
    /// A program that waits.
    Keepalive,
    /// The image's own program.
    Entrypoint,
    /// `command`.
    Command,
}

/// State that a container has to reach before steps use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerWaitFor {
    /// The container runs.
    Running,
    /// The container's health check succeeds.
    Healthy,
}
