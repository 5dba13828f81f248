//! Forms of human tasks: a flat JSON Schema.

use std::collections::HashSet;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::{output::check_names, params::DagParamType, values::DagScalar};
use crate::{
    common::{JsonObject, check_regex},
    problems::{ManifestPath, ProblemList},
};

/// Form of a human task. Each property is an output of the step.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagForm {
    /// `object`.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = "^object$"))]
    pub form_type: String,
    /// Title.
    pub title: Option<String>,
    /// Purpose, for people.
    pub description: Option<String>,
    /// Fields by name in order, each as [`DagFormField`].
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, DagFormField>")]
    pub properties: JsonObject,
    /// Fields that have to be given.
    #[serde(default)]
    pub required: Vec<String>,
    /// True to take other fields, too. Default: false.
    #[serde(default, rename = "additionalProperties")]
    pub takes_others: bool,
}

/// Field of a form.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagFormField {
    /// Type of the value. Default: that of the values that are allowed.
    #[serde(rename = "type")]
    pub field_type: Option<DagParamType>,
    /// Title.
    pub title: Option<String>,
    /// Purpose, for people.
    pub description: Option<String>,
    /// Value that is there already.
    pub default: Option<DagScalar>,
    /// Values that are allowed.
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<DagScalar>>,
    /// Values that are allowed, with titles: objects with `const`, `title` and `description`.
    #[serde(rename = "oneOf")]
    pub options: Option<Vec<JsonObject>>,
    /// Least number.
    pub minimum: Option<f64>,
    /// Greatest number.
    pub maximum: Option<f64>,
    /// Least length of a text in characters.
    #[serde(rename = "minLength")]
    pub min_length: Option<u64>,
    /// Greatest length of a text in characters.
    #[serde(rename = "maxLength")]
    pub max_length: Option<u64>,
    /// Regular expression that a text matches.
    pub pattern: Option<String>,
}

/// Schema of a form, without references to others.
pub(super) fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<DagForm>().to_value()
}

/// Checks a form that its schema takes.
pub(super) fn check_form(form: &Value, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let Ok(form) = serde_json::from_value::<DagForm>(form.clone()) else { return };
    check_names(form.properties.keys(), &at.join("properties"), problems);
    for (name, field) in &form.properties {
        let at = at.join("properties").join(name);
        let Ok(field) = serde_json::from_value::<DagFormField>(field.clone()) else { continue };
        if field.field_type.is_none() && field.allowed.is_none() && field.options.is_none() {
            problems.add(&at, "needs a `type`: string, integer, number or boolean");
        }
        if let Some(pattern) = &field.pattern {
            check_regex(pattern, &at.join("pattern"), problems);
        }
    }
    let mut seen = HashSet::new();
    for (index, name) in form.required.iter().enumerate() {
        if !form.properties.contains_key(name) || !seen.insert(name) {
            let message = format!("`{name:.60}` is not a property of the form, or there twice");
            problems.add(&at.join("required").join(index), message);
        }
    }
}
