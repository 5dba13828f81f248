//! Values of a DAG and its steps that may be written in several ways: texts, environments, conditions,
//! attempts and repetitions.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::common::JsonObject;

/// A text, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    /// Texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
        .iter()
        .map(String::as_str)
    }
}

/// A text, a number or a truth value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagScalar {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A truth value.
    Truth(bool),
}

impl fmt::Display for DagScalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
        }
    }
}

/// Environment: a mapping, or a list of `NAME=value` or mappings, whose order counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagEnv {
    /// By name, in order.
    Map(JsonObject),
    /// In order.
    List(Vec<DagEnvItem>),
}

/// Item of an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagEnvItem {
    /// `NAME=value`.
    Pair(String),
    /// By name, in order.
    Map(JsonObject),
}

impl DagEnv {
    /// Names with their values in order; a value that is not a text is as JSON has it.
    pub fn pairs(&self) -> Vec<(&str, Cow<'_, str>)> {
        let mut pairs = Vec::new();
        match self {
            Self::Map(map) => pairs.extend(map.iter().map(named)),
            Self::List(items) => {
                for item in items {
                    match item {
                        DagEnvItem::Pair(pair) => {
                            pairs.extend(pair.split_once('=').map(|(name, it)| (name, it.into())));
                        }
                        DagEnvItem::Map(map) => pairs.extend(map.iter().map(named)),
                    }
                }
            }
        }
        pairs
    }
}

fn named<'v>((name, value): (&'v String, &'v Value)) -> (&'v str, Cow<'v, str>) {
    let text = match value {
        Value::String(text) => text.into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    };
    (name, text)
}

/// Labels: a text with commas, a list, or a mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagLabels {
    /// With commas.
    Text(String),
    /// In order.
    List(Vec<DagLabel>),
    /// By name.
    Map(BTreeMap<String, DagScalar>),
}

/// Label of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagLabel {
    /// A word, or `NAME=value`.
    Text(String),
    /// By name.
    Map(BTreeMap<String, DagScalar>),
}

/// A whole number, or a text with references that becomes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagCount {
    /// Number.
    Number(u64),
    /// Digits, or a text with references.
    Text(#[schemars(regex(pattern = r"^[0-9]{1,9}$|\$"))] String),
}

/// Exit status, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagStatusCodes {
    /// One.
    One(#[schemars(range(min = 0, max = 255))] i64),
    /// One, as a text.
    Text(#[schemars(regex(pattern = "^[0-9]{1,3}$"))] String),
    /// Several.
    More(Vec<i64>),
}

impl DagStatusCodes {
    /// Statuses in order.
    pub fn codes(&self) -> Vec<i32> {
        let code = |code: &i64| i32::try_from(*code).ok();
        match self {
            Self::One(one) => code(one).into_iter().collect(),
            Self::Text(text) => text.trim().parse().ok().into_iter().collect(),
            Self::More(more) => more.iter().filter_map(code).collect(),
        }
    }
}

/// Condition, or a list of them, which all have to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagPreconditions {
    /// Command whose status 0 is a yes.
    Command(#[schemars(regex(pattern = r"\S"))] String),
    /// Several.
    More(Vec<DagPreconditionItem>),
}

/// Condition of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagPreconditionItem {
    /// Command whose status 0 is a yes.
    Command(#[schemars(regex(pattern = r"\S"))] String),
    /// Value, or a command in detail.
    Detail(DagPrecondition),
}

/// Condition: a value with what it is expected to be, or a command.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagPrecondition {
    /// Value, or a command where nothing is expected; not blank.
    #[schemars(regex(pattern = r"\S"))]
    pub condition: Option<String>,
    /// Text whose references and command substitutions make the value, in place of `condition`; not blank.
    #[schemars(regex(pattern = r"\S"))]
    pub eval: Option<String>,
    /// Expected line of the value, as it is written; `re:` begins a regular expression. Not blank.
    #[schemars(regex(pattern = r"\S"))]
    pub expected: Option<String>,
    /// True to turn it into its opposite.
    pub negate: Option<bool>,
}

/// Growth of a pause: `true` doubles it, a number above 1 multiplies it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagBackoff {
    /// Whether it doubles.
    Doubles(bool),
    /// Factor above 1.
    Factor(f64),
}

/// Attempts of a step after a failure.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepRetryPolicy {
    /// Further attempts.
    pub limit: DagCount,
    /// Pause before the first of them in seconds.
    pub interval_sec: DagCount,
    /// Growth of the pause.
    pub backoff: Option<DagBackoff>,
    /// Longest pause in seconds.
    pub max_interval_sec: Option<u64>,
    /// Exit statuses that are tried again. Default: any but 0.
    pub exit_code: Option<DagStatusCodes>,
}

/// Attempts of a DAG after a failure.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagRetryPolicy {
    /// Further attempts.
    pub limit: DagCount,
    /// Pause before the first of them in seconds.
    pub interval_sec: DagCount,
    /// Growth of the pause.
    pub backoff: Option<DagBackoff>,
    /// Longest pause in seconds.
    pub max_interval_sec: Option<u64>,
}

/// Outcomes of a step after which later steps still run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ContinueOn {
    /// Name of an outcome.
    Named(ContinueOnRule),
    /// Several outcomes, in detail.
    Detail(ContinueOnDetail),
}

/// Outcome of a step after which later steps still run, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContinueOnRule {
    /// The step failed.
    Failed,
    /// The step was left out.
    Skipped,
}

/// Outcomes of a step after which later steps still run, in detail.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContinueOnDetail {
    /// True for a failure of the step.
    pub failure: Option<bool>,
    /// True for a step that was left out.
    pub skipped: Option<bool>,
    /// Exit statuses of the step.
    pub exit_code: Option<DagStatusCodes>,
    /// Output with one of these texts; `re:` begins a regular expression.
    pub output: Option<OneOrMore>,
    /// True to count the step as a success then.
    pub mark_success: Option<bool>,
}

/// Condition and bounds of further runs of a step.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatPolicy {
    /// `while` or `until` the condition holds; `true` for ever.
    pub repeat: Option<Repeat>,
    /// Value, or a command where nothing is expected.
    pub condition: Option<String>,
    /// Expected value; `re:` begins a regular expression.
    pub expected: Option<DagScalar>,
    /// Exit statuses in place of a condition.
    pub exit_code: Option<DagStatusCodes>,
    /// Pause in seconds.
    pub interval_sec: Option<DagCount>,
    /// Most runs.
    pub limit: Option<DagCount>,
    /// Growth of the pause.
    pub backoff: Option<DagBackoff>,
    /// Longest pause in seconds.
    pub max_interval_sec: Option<DagCount>,
}

/// How a repetition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Repeat {
    /// Whether it repeats for ever.
    Always(bool),
    /// By a condition.
    By(RepeatMode),
}

/// How a condition ends a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RepeatMode {
    /// The step is repeated while the condition holds.
    While,
    /// The step is repeated until the condition holds.
    Until,
}
