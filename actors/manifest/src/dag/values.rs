//! Values of a DAG that may be written in several ways.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Environment: a mapping, or a list of `NAME=value` or mappings, whose order counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagEnv {
    /// By name.
    Map(BTreeMap<String, Option<DagScalar>>),
    /// In order.
    List(Vec<DagEnvItem>),
}

/// Item of an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagEnvItem {
    /// `NAME=value`.
    Pair(#[schemars(regex(pattern = "^[^=]+="))] String),
    /// By name.
    Map(BTreeMap<String, Option<DagScalar>>),
}

/// Labels: a text with commas, a list, or a mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagLabels {
    /// With commas.
    Text(String),
    /// In order.
    List(Vec<String>),
    /// By name.
    Map(BTreeMap<String, DagScalar>),
}

/// Parameters: a text, a list of names with values or of typed ones, or a mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParams {
    /// Positional, with spaces between.
    Text(String),
    /// In order.
    List(Vec<DagParam>),
    /// By name, or a JSON Schema.
    Map(JsonObject),
}

/// Parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParam {
    /// Positional, or `NAME=value`.
    Value(DagScalar),
    /// By name, or typed with `name`, `type`, `required`, `default`.
    Map(JsonObject),
}

/// Output: the variable that takes the standard output, or values by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagOutput {
    /// Variable.
    Variable(#[schemars(regex(pattern = r"^\$?\{?[A-Za-z_][A-Za-z0-9_]*\}?$"))] String),
    /// Values, literal or taken from a stream or a file.
    Values(BTreeMap<String, Value>),
}

/// Exit status, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagStatusCodes {
    /// One.
    One(#[schemars(range(min = 0, max = 255))] i64),
    /// Several.
    More(Vec<i64>),
}
