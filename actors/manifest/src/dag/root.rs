//! Parts of a DAG that belong to the whole: goals of an agent, its model, secrets, programs that do a
//! step's work, and actions of its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::common::JsonObject;

/// Goal of a DAG of type `agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagTask {
    /// Name, which no other goal has.
    #[schemars(regex(pattern = r"\S"))]
    pub name: String,
    /// When the goal is reached; the agent decides by it.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
}

/// Model that decides in a DAG of type `agent`, or that steps ask unless they say otherwise.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagModel {
    /// Provider.
    pub provider: Option<String>,
    /// Name of the model, or models in order: each but the first stands in for those before it.
    pub model: Option<DagModels>,
    /// Instructions before all messages.
    pub system: Option<String>,
    /// Spread of the answers.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Longest answer in tokens.
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Share of the likeliest tokens.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// Address of the provider.
    pub base_url: Option<String>,
    /// Environment variable with the key.
    pub api_key_name: Option<String>,
    /// True to show the answer while it comes.
    pub stream: Option<bool>,
    /// Settings of a model's thinking.
    pub thinking: Option<JsonObject>,
    /// Settings of searches.
    pub web_search: Option<JsonObject>,
    /// Most calls of tools; of an agent, most decisions. Default of an agent: 50.
    pub max_tool_iterations: Option<u64>,
    /// Tokens of a request from which old results are made shorter; 0 never. Of an agent.
    pub max_context_tokens: Option<u64>,
    /// Largest result that is shown, in bytes; 0 is without a limit. Of an agent.
    pub observation_max_bytes: Option<u64>,
    /// Results that stay whole, the latest first. Of an agent.
    pub observation_keep_recent: Option<u64>,
}

/// Name of a model, or several in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagModels {
    /// Name.
    Name(String),
    /// In order.
    List(Vec<DagModelEntry>),
}

/// Model of a list.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagModelEntry {
    /// Provider.
    pub provider: String,
    /// Name of the model.
    pub name: String,
    /// Spread of the answers.
    pub temperature: Option<f64>,
    /// Longest answer in tokens.
    pub max_tokens: Option<u64>,
    /// Share of the likeliest tokens.
    pub top_p: Option<f64>,
    /// Address of the provider.
    pub base_url: Option<String>,
    /// Environment variable with the key.
    pub api_key_name: Option<String>,
}

/// Secret that becomes environment: `ref`, or `provider` and `key`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagSecret {
    /// Name of the environment variable.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Path of the secret.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Kind of the store.
    pub provider: Option<String>,
    /// Key in the store.
    pub key: Option<String>,
    /// Settings of the store.
    pub options: Option<BTreeMap<String, String>>,
}

/// Program that `harness.run` can name as its `provider`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagHarness {
    /// Program.
    #[schemars(length(min = 1))]
    pub binary: String,
    /// Arguments before all others.
    pub prefix_args: Option<Vec<String>>,
    /// How the prompt is passed. Default: `arg`.
    pub prompt_mode: Option<DagPromptMode>,
    /// Flag before the prompt, for `prompt_mode: flag`.
    pub prompt_flag: Option<String>,
    /// Whether the prompt is before or after the flags.
    #[schemars(regex(pattern = "^(before|after)_flags$"))]
    pub prompt_position: Option<String>,
    /// Form of the flags. Default: `gnu_long`.
    #[schemars(regex(pattern = "^(gnu_long|single_dash)$"))]
    pub flag_style: Option<String>,
    /// Flags of settings by the name of the setting.
    pub option_flags: Option<BTreeMap<String, String>>,
}

/// How a program is given its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagPromptMode {
    /// Argument.
    Arg,
    /// Argument behind a flag.
    Flag,
    /// Standard input.
    Stdin,
}

/// Action of the file's own, made of another one.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagCustomAction {
    /// Purpose of the action, for people.
    pub description: Option<String>,
    /// JSON Schema of `with`.
    pub input_schema: JsonObject,
    /// JSON Schema of the outputs.
    pub output_schema: Option<JsonObject>,
    /// Step with `run` or `action`; `{{ .input.NAME }}` in its texts is replaced.
    pub template: JsonObject,
}

/// Programs that steps need: `PACKAGE@VERSION` in a list, or with settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagPrograms {
    /// Packages.
    List(Vec<Value>),
    /// Packages with their provider and registry.
    Detail(JsonObject),
}

/// Limits of the steps.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagResources {
    /// Limits.
    pub limits: Option<DagResourceLimits>,
}

/// Limits of a step.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagResourceLimits {
    /// Processors, as `500m` or `1.5`.
    #[schemars(regex(pattern = r"^[0-9]+(m|\.[0-9]{1,3})?$"))]
    pub cpu: Option<String>,
    /// Memory, as `512Mi`.
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?([KkMmGgTtPpEe]i?)?[Bb]?$"))]
    pub memory: Option<String>,
}
