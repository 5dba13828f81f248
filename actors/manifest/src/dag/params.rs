//! Parameters of a DAG, typed or by name, and its constants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{reference::is_name, values::DagScalar};
use crate::{
    common::{JsonObject, check_json_schema, check_regex},
    problems::{ManifestPath, ProblemList},
};

/// Parameters: a text, a list of names with values or of typed ones, or a mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParams {
    /// Positional or `NAME=value`, with spaces between.
    Text(String),
    /// In order.
    List(Vec<DagParam>),
    /// By name, a JSON Schema, or `schema` with `values`.
    Map(JsonObject),
}

/// Parameter of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagParam {
    /// Positional, or `NAME=value`.
    Value(DagScalar),
    /// Typed.
    Typed(Box<DagParamSpec>),
    /// Values by name.
    Map(JsonObject),
}

/// Typed parameter.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagParamSpec {
    /// Name: a letter, then letters, digits and `_`.
    pub name: String,
    /// Type of the value. Default: `string`.
    #[serde(rename = "type")]
    pub param_type: Option<DagParamType>,
    /// Value where the caller gives none, as it is written.
    pub default: Option<DagScalar>,
    /// Text whose references and command substitutions make the value where the caller gives none.
    pub eval: Option<String>,
    /// Purpose of the parameter, for people.
    pub description: Option<String>,
    /// True if the caller has to give it.
    pub required: Option<bool>,
    /// Values that are allowed.
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<DagScalar>>,
    /// Least number.
    pub minimum: Option<f64>,
    /// Greatest number.
    pub maximum: Option<f64>,
    /// Least length of a text in characters.
    pub min_length: Option<u64>,
    /// Greatest length of a text in characters.
    pub max_length: Option<u64>,
    /// Regular expression that a text matches.
    pub pattern: Option<String>,
}

/// Type of a parameter, or of a field of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagParamType {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

impl DagParamType {
    fn takes(self, value: &DagScalar) -> bool {
        match value {
            DagScalar::Text(_) => self == Self::String,
            DagScalar::Integer(_) => matches!(self, Self::Integer | Self::Number),
            DagScalar::Number(_) => self == Self::Number,
            DagScalar::Truth(_) => self == Self::Boolean,
        }
    }
}

impl DagParams {
    /// Names with whether there is a value without the caller, in order. A schema elsewhere tells none.
    pub fn names(&self) -> Vec<(&str, bool)> {
        match self {
            Self::Text(text) => text
                .split_whitespace()
                .filter_map(|word| Some((word.split_once('=')?.0, true)))
                .collect(),
            Self::List(list) => list
                .iter()
                .flat_map(|param| match param {
                    DagParam::Value(DagScalar::Text(text)) => {
                        text.split_once('=').map(|(name, _)| (name, true)).into_iter().collect()
                    }
                    DagParam::Value(_) => Vec::new(),
                    DagParam::Typed(spec) => {
                        let has_value = spec.default.is_some() || spec.eval.is_some();
                        vec![(spec.name.as_str(), has_value)]
                    }
                    DagParam::Map(map) => map.keys().map(|name| (name.as_str(), true)).collect(),
                })
                .collect(),
            Self::Map(map) => match Self::properties(map) {
                Some(properties) => properties
                    .iter()
                    .map(|(name, schema)| (name.as_str(), schema.get("default").is_some()))
                    .collect(),
                None => map.keys().map(|name| (name.as_str(), true)).collect(),
            },
        }
    }

    /// Properties of a mapping that is a JSON Schema, or has one.
    fn properties(map: &JsonObject) -> Option<&JsonObject> {
        let schema = map.get("schema").and_then(|schema| schema.as_object()).unwrap_or(map);
        schema.get("properties").filter(|_| schema.contains_key("type"))?.as_object()
    }
}

/// Constant by its name; each item of the list has one.
pub type DagConst = std::collections::BTreeMap<String, DagScalar>;

pub(super) fn check_consts(list: &[DagConst], at: &ManifestPath, problems: &mut ProblemList<'_>) {
    for (index, item) in list.iter().enumerate() {
        if item.len() != 1 {
            problems.add(&at.join(index), "an item has exactly one constant: `- name: value`");
        }
        for name in item.keys().filter(|name| !is_name(name)) {
            let message = "is not a name: a letter, then letters, digits and `_`";
            problems.add_key(&at.join(index).join(name), message);
        }
    }
}

pub(super) fn check_params(params: &DagParams, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    match params {
        DagParams::Text(_) => {}
        DagParams::List(list) => {
            let mut seen = std::collections::HashSet::new();
            for (index, param) in list.iter().enumerate() {
                let at = at.join(index);
                match param {
                    DagParam::Typed(spec) => {
                        check_spec(spec, &at, problems);
                        if !seen.insert(spec.name.as_str()) {
                            let message =
                                format!("the parameter `{:.60}` is there twice", spec.name);
                            problems.add(&at.join("name"), message);
                        }
                    }
                    DagParam::Map(map) if map.contains_key("name") && map.len() > 1 => {
                        let message = "is not a parameter: its keys are name, type, default, eval, \
                            description, required, enum, minimum, maximum, min_length, max_length \
                            and pattern";
                        problems.add(&at, message);
                    }
                    DagParam::Map(_) | DagParam::Value(_) => {}
                }
            }
        }
        DagParams::Map(map) => match (DagParams::properties(map), map.get("schema")) {
            (Some(_), Some(schema)) => {
                let schema = schema.as_object().into_iter();
                schema.for_each(|it| check_json_schema(it, &at.join("schema"), problems));
            }
            (Some(_), None) => check_json_schema(map, at, problems),
            (None, _) => {}
        },
    }
}

fn check_spec(spec: &DagParamSpec, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if !is_name(&spec.name) {
        let message =
            format!("`{:.60}` is not a name: a letter, then letters, digits and `_`", spec.name);
        problems.add(&at.join("name"), message);
    }
    let values = spec.default.iter().map(|value| (at.join("default"), value));
    let allowed = spec.allowed.iter().flatten().enumerate();
    let allowed = allowed.map(|(index, value)| (at.join("enum").join(index), value));
    for (at, value) in values.chain(allowed) {
        if spec.param_type.is_some_and(|kind| !kind.takes(value)) {
            problems.add(&at, "is not of the parameter's `type`");
        }
    }
    if let (Some(default), Some(allowed)) = (&spec.default, &spec.allowed)
        && !allowed.contains(default)
    {
        problems.add(&at.join("default"), "is not among the values of `enum`");
    }
    if let Some(pattern) = &spec.pattern {
        check_regex(pattern, &at.join("pattern"), problems);
    }
}
