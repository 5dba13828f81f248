//! Parameters of a run: what a DAG declares, in each of its forms, and what a caller gives.

use std::collections::HashSet;

use hivekeep_manifest::{
    common::JsonObject,
    dag::{DagParam, DagParamSpec, DagParams},
};
use hivekeep_runtime::{
    json_schema::{
        JsonType, ValidationError, ValidationErrorKind, expected, validator, violations,
    },
    json_text::integer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{GivenParams, given, value_text};

/// Parameters of a run, all as texts, in order. One without a name has its place, from 1, for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunParams(JsonObject);

impl RunParams {
    /// Value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// All of them by name.
    pub fn to_object(&self) -> JsonObject {
        self.0.clone()
    }

    /// Value of a place, as `1`.
    pub(super) fn positional(&self, place: &str) -> Option<&str> {
        self.get(place).filter(|_| is_place(place))
    }

    /// Names with their values, which are variables of the environment.
    pub fn named(&self) -> impl Iterator<Item = (String, String)> {
        let named = self.0.iter().filter(|(name, _)| !is_place(name));
        named.map(|(name, value)| (name.clone(), value_text(value).into_owned()))
    }

    /// Object of all, as `${params}` and `DAG_PARAMS_JSON` have it; `None` where there is none.
    pub fn to_json(&self) -> Option<String> {
        let json = serde_json::to_string(&self.0).ok();
        json.filter(|_| !self.0.is_empty())
    }

    pub(super) fn put(&mut self, name: &str, text: String) {
        self.0.insert(name.to_owned(), text.into());
    }
}

fn is_place(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_digit())
}

/// Why parameters are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// A required one that is not given.
    #[error("parameter `{0}` is required: give it as `{0}=VALUE`")]
    Missing(String),
    /// A value that breaks a rule, by the name and the form of one that does not.
    #[error("parameter `{0}` is not valid: write {1}")]
    Invalid(String, String),
    /// A name, or a place, that the DAG does not declare.
    #[error("there is no parameter `{0}`: give those that the DAG declares")]
    Unknown(String),
    /// A value by place where parameters have names alone.
    #[error("parameters of a schema have no places: give each as `NAME=VALUE`")]
    Unnamed,
    /// A command of `eval` that failed where there is no default, by the name and the reason.
    #[error("parameter `{0}` cannot be computed, and has no default: {1}")]
    Eval(String, String),
    /// A schema that cannot be used.
    #[error("the schema of the parameters cannot be used: {0}")]
    Schema(String),
}

/// Parameters as a DAG declares them.
#[derive(Debug, Default)]
pub(super) struct DeclaredParams {
    params: Vec<DeclaredParam>,
    /// JSON Schema of the object of all; null is any.
    schema: Value,
    has_names_alone: bool,
    /// Parameters without a name.
    places: usize,
}

/// A parameter as a DAG declares it.
#[derive(Debug, Clone, Default)]
pub(super) struct DeclaredParam {
    /// Name; without one the place, from 1.
    pub(super) name: String,
    pub(super) default: Option<Value>,
    pub(super) eval: Option<String>,
}

/// Path or address of the schema that a DAG's parameters have, if that is in a file of its own.
pub fn schema_file(params: &DagParams) -> Option<&str> {
    let DagParams::Map(map) = params else { return None };
    map.get("schema").filter(|_| has_schema(map))?.as_str()
}

/// True for `schema` with `values`, and for what can only be a schema without them.
fn has_schema(map: &JsonObject) -> bool {
    let is_schema = match map.get("schema") {
        Some(Value::Object(_)) => true,
        Some(Value::String(path)) => path.contains(['.', '/', '\\']),
        _ => false,
    };
    map.keys().all(|key| ["schema", "values"].contains(&key.as_str()))
        && map.contains_key("schema")
        && (is_schema || map.contains_key("values"))
}

impl DeclaredParams {
    /// Parameters of a DAG; `file` is the content of [`schema_file`].
    pub(super) fn of(params: &DagParams, file: Option<&Value>) -> Result<Self, ParamError> {
        let mut declared = Self::default();
        match params {
            DagParams::Text(text) => given::words(text).iter().for_each(|it| declared.word(it)),
            DagParams::List(list) => {
                for param in list {
                    match param {
                        DagParam::Value(scalar) => declared.word(&scalar.to_string()),
                        DagParam::Typed(spec) => declared.typed(spec),
                        DagParam::Map(map) => declared.plain(map),
                    }
                }
                declared.close();
            }
            DagParams::Map(map) if has_schema(map) => {
                let schema = map.get("schema").unwrap_or(&Value::Null);
                let missing = || ParamError::Schema(format!("{schema} is not there"));
                let schema = if schema.is_string() { file.ok_or_else(missing)? } else { schema };
                declared.schema(schema, map.get("values").and_then(Value::as_object));
            }
            DagParams::Map(map)
                if map.get("type") == Some(&"object".into()) && map.contains_key("properties") =>
            {
                declared.schema(&Value::Object(map.clone()), None);
            }
            DagParams::Map(map) => declared.plain(map),
        }
        Ok(declared)
    }

    /// Fields of a form.
    pub(super) fn of_form(schema: &Value) -> Self {
        let mut declared = Self::default();
        declared.schema(schema, None);
        declared
    }

    fn word(&mut self, word: &str) {
        let (name, value) = given::named(word).map_or_else(
            || {
                self.places += 1;
                (self.places.to_string(), word)
            },
            |(name, value)| (name.to_owned(), value),
        );
        self.params.push(DeclaredParam { name, default: Some(value.into()), eval: None });
    }

    fn plain(&mut self, map: &JsonObject) {
        self.params.extend(map.iter().map(|(name, value)| DeclaredParam {
            name: name.clone(),
            default: Some(value.clone()),
            eval: None,
        }));
    }

    fn typed(&mut self, spec: &DagParamSpec) {
        let written = serde_json::to_value(spec).unwrap_or_default();
        let kind = written["type"].as_str().unwrap_or("string");
        let mut rules = JsonObject::new();
        for (key, rule) in [
            ("enum", "enum"),
            ("minimum", "minimum"),
            ("maximum", "maximum"),
            ("min_length", "minLength"),
            ("max_length", "maxLength"),
            ("pattern", "pattern"),
        ] {
            let value = match &written[key] {
                Value::Null => continue,
                Value::Array(all) => all.iter().map(|it| coerced(it, kind)).collect(),
                Value::Number(number) => Value::Number(integer(number).unwrap_or(number.clone())),
                other => other.clone(),
            };
            rules.insert(rule.to_owned(), value);
        }
        rules.insert("type".to_owned(), kind.into());
        self.schema["properties"][&spec.name] = rules.into();
        if spec.required == Some(true) {
            match &mut self.schema["required"] {
                Value::Array(names) => names.push(spec.name.as_str().into()),
                names => *names = json!([spec.name]),
            }
        }
        let default = written.get("default").filter(|default| !default.is_null()).cloned();
        let (name, eval) = (spec.name.clone(), spec.eval.clone());
        self.params.push(DeclaredParam { name, default, eval });
    }

    /// Refuses names that are not declared, if types are.
    fn close(&mut self) {
        if self.schema.is_null() {
            return;
        }
        for DeclaredParam { name, .. } in &self.params {
            let rules = &mut self.schema["properties"][name];
            *rules = if rules.is_null() { true.into() } else { rules.take() };
        }
        self.schema["additionalProperties"] = false.into();
    }

    fn schema(&mut self, schema: &Value, values: Option<&JsonObject>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let default = values.and_then(|values| values.get(name));
            let default = default.or_else(|| property.get("default")).cloned();
            self.params.push(DeclaredParam { name: name.clone(), default, eval: None });
        }
        let others = values.into_iter().flatten();
        let others = others.filter(|(name, _)| schema["properties"].get(name).is_none());
        let others: JsonObject = others.map(|(name, it)| (name.clone(), it.clone())).collect();
        self.plain(&others);
        (self.schema, self.has_names_alone) = (schema.clone(), true);
    }

    fn kind(&self, name: &str) -> Option<&str> {
        self.schema["properties"][name]["type"].as_str()
    }

    /// Whether a parameter of the name is declared.
    pub(super) fn has(&self, name: &str) -> bool {
        self.params.iter().any(|param| param.name == name)
    }

    /// Parameters in order, with what is given for each: by name, or by place among the others. What is given
    /// beyond them comes last.
    pub(super) fn assigned(
        &self,
        given: &GivenParams,
    ) -> Result<Vec<(DeclaredParam, Option<Value>)>, ParamError> {
        if self.has_names_alone && !given.positional.is_empty() {
            return Err(ParamError::Unnamed);
        }
        let mut positional = given.positional.iter().enumerate();
        let mut assigned = Vec::new();
        for param in &self.params {
            let value = given.named.get(&param.name);
            let value = value.or_else(|| positional.next().map(|(_, value)| value));
            assigned.push((param.clone(), value.cloned()));
        }
        let known: HashSet<_> = self.params.iter().map(|param| &param.name).collect();
        let others = given.named.iter().filter(|(name, _)| !known.contains(name));
        let others = others.map(|(name, value)| (name.clone(), value));
        let places = positional.map(|(place, value)| ((place + 1).to_string(), value));
        assigned.extend(others.chain(places).map(|(name, value)| {
            (DeclaredParam { name, ..DeclaredParam::default() }, Some(value.clone()))
        }));
        Ok(assigned)
    }

    /// Value in the type of its declaration; callers give texts.
    pub(super) fn coerced(&self, name: &str, value: &Value) -> Value {
        coerced(value, self.kind(name).unwrap_or_default())
    }

    /// Checks the object of all parameters.
    pub(super) fn check(&self, params: JsonObject) -> Result<(), ParamError> {
        if self.schema.is_null() {
            return Ok(());
        }
        let validator = validator(&self.schema).map_err(ParamError::Schema)?;
        let params = Value::Object(params);
        let broken = validator.iter_errors(&params).next().map(|error| told(&error));
        broken.map_or(Ok(()), Err)
    }
}

fn coerced(value: &Value, kind: &str) -> Value {
    let read = || match (kind, value) {
        ("integer", Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        ("integer", Value::Number(number)) => integer(number).map(Value::Number),
        ("number" | "boolean" | "array" | "object", Value::String(text)) => {
            serde_json::from_str(text).ok()
        }
        ("string", Value::Bool(_) | Value::Number(_)) => Some(value_text(value).into()),
        _ => None,
    };
    read().unwrap_or_else(|| value.clone())
}

/// Violation as an error of the parameter that it is about.
fn told(error: &ValidationError<'_>) -> ParamError {
    let place = error.instance_path().to_string();
    let name = place.split('/').nth(1).unwrap_or("params").to_owned();
    match error.kind() {
        ValidationErrorKind::Required { property } if place.is_empty() => {
            ParamError::Missing(value_text(property).into_owned())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } if place.is_empty() => {
            ParamError::Unknown(unexpected.first().cloned().unwrap_or_default())
        }
        _ => {
            let rules = violations(error);
            let rules = rules.first().map(Vec::as_slice).unwrap_or_default();
            ParamError::Invalid(name, expected(rules, JsonType::as_str))
        }
    }
}
