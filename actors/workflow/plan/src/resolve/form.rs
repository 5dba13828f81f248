//! Values of a human task's form: checked with their defaults, and the outputs that they become.

use std::collections::BTreeMap;

use hivekeep_manifest::common::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{NamedTexts, ParamError, params::DeclaredParams, value_text};

/// Values that a person gives.
#[derive(Debug, Clone, PartialEq)]
pub enum FormValues {
    /// Values in their types.
    Typed(JsonObject),
    /// Texts, which stand for values of the types that the form declares.
    Texts(BTreeMap<String, String>),
}

/// Form of a human task, with all that its text may leave out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskForm(JsonObject);

impl TaskForm {
    /// Form of the text of `with.form`; one that is not there takes no values.
    pub fn of(written: Option<&Value>) -> Self {
        let mut form = written.and_then(Value::as_object).cloned().unwrap_or_default();
        form.entry("type").or_insert("object".into());
        form.entry("properties").or_insert(JsonObject::new().into());
        form.entry("additionalProperties").or_insert(false.into());
        let properties = form.get_mut("properties").and_then(Value::as_object_mut);
        for field in properties.into_iter().flat_map(JsonObject::values_mut) {
            let kind = kind_of(field);
            if let Some(field) = field.as_object_mut() {
                field.entry("type").or_insert(kind.into());
            }
        }
        Self(form)
    }

    /// Fields by name, each a JSON Schema with its type.
    pub fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Whether a field has to be given, as there is no default.
    pub fn needs(&self, name: &str) -> bool {
        let required = self.0.get("required").and_then(Value::as_array).into_iter().flatten();
        let default = self.fields().find(|(field, _)| *field == name).map(|(_, it)| it);
        required.into_iter().any(|it| it == name)
            && default.is_none_or(|field| field.get("default").is_none())
    }

    /// Values with the defaults of those that are not given.
    ///
    /// # Errors
    /// The first rule of the form that a value breaks.
    pub fn take(&self, given: &FormValues) -> Result<JsonObject, ParamError> {
        let schema = Value::Object(self.0.clone());
        let declared = DeclaredParams::of_form(&schema);
        let mut values = match given {
            FormValues::Typed(values) => values.clone(),
            FormValues::Texts(texts) => texts
                .iter()
                .map(|(name, text)| (name.clone(), declared.coerced(name, &text.as_str().into())))
                .collect(),
        };
        for (name, field) in self.fields() {
            if let (None, Some(default)) = (values.get(name), field.get("default")) {
                values.insert(name.clone(), default.clone());
            }
        }
        declared.check(values.clone())?;
        Ok(values)
    }

    /// Outputs of values that the form took: those of its fields.
    pub fn outputs(&self, values: &JsonObject) -> NamedTexts {
        let output =
            |name: &String| Some((name.clone(), value_text(values.get(name)?).into_owned()));
        self.fields().filter_map(|(name, _)| output(name)).collect()
    }
}

/// Type of a field that names none: that of the values it allows.
fn kind_of(field: &Value) -> &'static str {
    let allowed = field.get("enum").or_else(|| field.get("oneOf")).and_then(Value::as_array);
    let mut allowed = allowed.into_iter().flatten().map(|it| it.get("const").unwrap_or(it));
    match allowed.next() {
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Number(first)) => {
            let has_parts = first.is_f64() || allowed.any(Value::is_f64);
            if has_parts { "number" } else { "integer" }
        }
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> TaskForm {
        TaskForm::of(Some(&json!({
            "type": "object",
            "properties": {
                "environment": { "enum": ["staging", "production"] },
                "replicas": { "type": "integer", "minimum": 1, "default": 2 },
                "ratio": { "enum": [1, 2.5] },
                "notify": { "type": "boolean", "default": true },
            },
            "required": ["environment", "replicas"],
        })))
    }

    #[test]
    fn values_are_those_of_the_form_with_its_defaults() {
        let texts = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            form().take(&FormValues::Texts(all.collect()))
        };
        let typed = |value: Value| {
            form().take(&FormValues::Typed(value.as_object().cloned().unwrap_or_default()))
        };
        let expected = json!({ "environment": "production", "replicas": 3, "notify": true });
        for taken in [
            texts(&[("environment", "production"), ("replicas", "3")]),
            typed(json!({ "environment": "production", "replicas": 3 })),
        ] {
            let taken = taken.expect("it fits");
            assert_eq!(Value::Object(taken.clone()), expected);
            let outputs = form().outputs(&taken);
            let outputs: Vec<_> = outputs.iter().map(|(name, it)| format!("{name}={it}")).collect();
            assert_eq!(outputs, ["environment=production", "notify=true", "replicas=3"]);
        }
        for (broken, what) in [
            (typed(json!({})), "`environment` is required"),
            (
                typed(json!({ "environment": "production", "replicas": "3" })),
                "`replicas` is not valid",
            ),
            (
                typed(json!({ "environment": "production", "replicas": 0 })),
                "`replicas` is not valid",
            ),
            (typed(json!({ "environment": "here" })), "`environment` is not valid"),
            (typed(json!({ "environment": "staging", "other": 1 })), "`other`"),
            (texts(&[("environment", "staging"), ("replicas", "many")]), "`replicas` is not valid"),
        ] {
            let told = broken.expect_err(what).to_string();
            assert!(told.contains(what), "{told}");
        }
        assert!(
            form().needs("environment") && !form().needs("replicas") && !form().needs("notify")
        );
    }

    #[test]
    fn a_task_without_a_form_takes_no_values_and_others_are_no_outputs() {
        let none = TaskForm::of(None);
        assert_eq!(none.take(&FormValues::Texts(BTreeMap::new())), Ok(JsonObject::new()));
        let given = JsonObject::from_iter([("x".to_owned(), json!([1]))]);
        assert!(none.take(&FormValues::Typed(given.clone())).is_err());
        let open = TaskForm::of(Some(&json!({ "type": "object", "additionalProperties": true })));
        assert_eq!(open.take(&FormValues::Typed(given.clone())), Ok(given.clone()));
        assert!(open.outputs(&given).is_empty());
    }
}
