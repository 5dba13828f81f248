//! Steps of a DAG.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{DagApproval, DagParallel};
use super::container::DagContainer;
use super::policies::{ContinueOn, DagPreconditions, RepeatPolicy, StepRetryPolicy};
use super::values::{DagEnv, DagOutput, DagParams, DagScalar, OneOrMore};
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagStep {
    /// Id for references: a letter, then letters, digits and `_`, at most 40.
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_]{0,39}$"))]
    pub id: Option<String>,
    /// Name, which no other step has.
    #[schemars(length(min = 1, max = 255))]
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Command, or commands that run in order until one fails.
    pub command: Option<OneOrMore>,
    /// Program that runs without a shell.
    pub exec: Option<DagExec>,
    /// Script; its first line or `shell` says what runs it.
    pub script: Option<String>,
    /// Shell that commands go through, with its arguments.
    pub shell: Option<OneOrMore>,
    /// Folder that it runs in.
    pub working_dir: Option<String>,
    /// Environment.
    pub env: Option<DagEnv>,
    /// Names or ids of the steps that it follows; for DAGs of type `graph`.
    pub depends: Option<OneOrMore>,
    /// Variable for its output, or values by name.
    pub output: Option<DagOutput>,
    /// File for its standard output.
    pub stdout: Option<String>,
    /// File for its standard error.
    pub stderr: Option<String>,
    /// What does not keep later steps from running.
    pub continue_on: Option<ContinueOn>,
    /// Attempts after a failure.
    pub retry_policy: Option<StepRetryPolicy>,
    /// When it runs again.
    pub repeat_policy: Option<RepeatPolicy>,
    /// Conditions; the step is left out where one does not hold.
    pub preconditions: Option<DagPreconditions>,
    /// Longest run in seconds.
    pub timeout_sec: Option<u64>,
    /// Signal that asks it to stop. Default: `SIGTERM`.
    pub signal_on_stop: Option<String>,
    /// True to tell a failure by mail.
    pub mail_on_error: Option<bool>,
    /// Name of another DAG, in place of a command.
    pub call: Option<String>,
    /// Parameters of the called DAG.
    pub params: Option<DagParams>,
    /// Items that the DAG is called for, side by side.
    pub parallel: Option<DagParallel>,
    /// Container that it runs in.
    pub container: Option<DagContainer>,
    /// Type of the step. Default: `command`, unless other fields say more.
    #[serde(rename = "type")]
    pub step_type: Option<String>,
    /// Settings of the type.
    #[serde(rename = "with")]
    pub settings: Option<JsonObject>,
    /// The same as `with`.
    pub config: Option<JsonObject>,
    /// Approval by a person after it has run.
    pub approval: Option<DagApproval>,
    /// Labels of the machines that may run it.
    pub worker_selector: Option<JsonObject>,
    /// Model, for steps that ask one.
    pub llm: Option<JsonObject>,
    /// Messages to the model.
    pub messages: Option<Vec<JsonObject>>,
    /// Agent, for steps that are one.
    pub agent: Option<JsonObject>,
    /// Value that a router compares.
    pub value: Option<DagScalar>,
    /// Steps of a router by the value; `re:` begins a regular expression.
    pub routes: Option<BTreeMap<String, OneOrMore>>,
}

/// Program that runs without a shell.
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
