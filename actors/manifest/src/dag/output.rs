//! Outputs of steps: values by name, streams in files, and declared outputs.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::{action::not_here, reference::is_name};
use crate::problems::{ManifestPath, ProblemList};

/// Keys that make an object say where a value is from.
const SOURCE_KEYS: [&str; 5] = ["value", "from", "path", "decode", "select"];

/// Output: the variable that takes the standard output, or values by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagOutput {
    /// Variable.
    Variable(#[schemars(regex(pattern = r"^\$?\{?[A-Za-z_][A-Za-z0-9_]*\}?$"))] String),
    /// Values, literal or taken from a stream or a file.
    Values(BTreeMap<String, DagOutputValue>),
}

/// Value of an output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagOutputValue {
    /// From a stream or a file.
    Taken(DagOutputSource),
    /// Literal under `value`.
    Given(DagOutputLiteral),
    /// Literal.
    Literal(Value),
}

/// Literal value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagOutputLiteral {
    /// Value; references in its texts are replaced.
    pub value: Value,
}

/// Stream or file that a value is taken from; at least one key is there.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagOutputSource {
    /// Stream, or `file`. Default: `stdout`.
    pub from: Option<DagOutputOrigin>,
    /// File, for `from: file`.
    pub path: Option<String>,
    /// Form of the text. Default: `text`.
    pub decode: Option<DagOutputForm>,
    /// Expression of jq that takes a part of JSON or YAML.
    pub select: Option<String>,
}

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagOutputOrigin {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file.
    File,
}

/// Form of a text that is a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagOutputForm {
    /// A text.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Stream: a file, or in detail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagStream {
    /// File.
    File(String),
    /// An artifact, outputs of the DAG, or both.
    Detail(DagStreamDetail),
}

/// Uses of a stream.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagStreamDetail {
    /// Path among the artifacts of the run.
    pub artifact: Option<String>,
    /// Outputs of the DAG; of the standard output alone.
    pub outputs: Option<DagStreamOutputs>,
}

/// Outputs of the DAG: the name of one, or in detail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagStreamOutputs {
    /// Name.
    Field(String),
    /// In detail.
    Detail(DagStreamFields),
}

/// Outputs of the DAG: all of a stream, or `fields`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagStreamFields {
    /// Name of the only output.
    pub field: Option<String>,
    /// Form of the text.
    pub decode: Option<DagOutputForm>,
    /// Expression of jq that takes a part of JSON or YAML.
    pub select: Option<String>,
    /// Outputs by name, in place of the other keys.
    pub fields: Option<BTreeMap<String, DagOutputValue>>,
}

/// Output that the step writes to the file `DAGU_OUTPUT_FILE`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagDeclaredOutput {
    /// Name: a letter, then letters, digits and `_`.
    #[schemars(regex(pattern = "^[A-Za-z][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Form of the value. Default: `string`.
    #[serde(rename = "type")]
    pub output_type: Option<DagDeclaredType>,
    /// File that the step makes; for `type: build`.
    pub path: Option<String>,
}

/// Form of a declared output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DagDeclaredType {
    /// A text.
    String,
    /// JSON.
    Json,
}

pub(super) fn check_values(
    values: &BTreeMap<String, DagOutputValue>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    for (name, value) in values {
        let at = at.join(name);
        match value {
            DagOutputValue::Taken(source) => check_source(source, &at, problems),
            DagOutputValue::Literal(Value::Object(object))
                if object.keys().any(|key| SOURCE_KEYS.contains(&key.as_str())) =>
            {
                let message = "is neither `value` alone nor `from` (stdout, stderr or file) with \
                    `path`, `decode` (text, json or yaml) and `select`";
                problems.add(&at, message);
            }
            DagOutputValue::Literal(_) | DagOutputValue::Given(_) => {}
        }
    }
}

fn check_source(source: &DagOutputSource, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let is_file = source.from == Some(DagOutputOrigin::File);
    if is_file != source.path.is_some() {
        problems.add(at, "`from: file` and `path` need each other");
    }
    if source.select.is_some() && matches!(source.decode, None | Some(DagOutputForm::Text)) {
        problems.add_key(&at.join("select"), "needs `decode: json` or `decode: yaml`");
    }
}

pub(super) fn check_stream_outputs(
    outputs: &DagStreamOutputs,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let DagStreamOutputs::Detail(detail) = outputs else { return };
    let Some(fields) = &detail.fields else { return };
    check_values(fields, &at.join("fields"), problems);
    if detail.field.is_some() || detail.decode.is_some() || detail.select.is_some() {
        problems.add_key(&at.join("fields"), "excludes `field`, `decode` and `select`");
    }
}

pub(super) fn check_declared(
    outputs: &[DagDeclaredOutput],
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if outputs.is_empty() {
        problems.add(at, "needs an output: remove the key where there is none");
    }
    let mut names = HashSet::new();
    for (index, output) in outputs.iter().enumerate() {
        let at = at.join(index);
        if output.path.is_some() {
            problems.add_key(&at.join("path"), not_here("path"));
        }
        if !names.insert(output.name.as_str()) {
            let message = format!("another output has the name `{:.60}`", output.name);
            problems.add(&at.join("name"), message);
        }
    }
}

/// Names of a mapping that have to be names, as `foreach.collect`.
pub(super) fn check_names<'n>(
    names: impl Iterator<Item = &'n String>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    for name in names.filter(|name| !is_name(name)) {
        let message = "is not a name: a letter, then letters, digits and `_`";
        problems.add_key(&at.join(name), message);
    }
}
