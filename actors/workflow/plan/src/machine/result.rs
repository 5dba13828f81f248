//! Final output of a run, by the template and the schema of its workflow.

use hivekeep_manifest::{common::JsonObject, workflow::WorkflowMetadata};
use hivekeep_runtime::{json_schema, json_text};
use serde_json::Value;

use super::flow::MachineScope;

/// Final output of a run that has completed; none if its workflow has no template of it. Texts become what the schema
/// wants: numbers, `true` or `false`, objects and lists.
///
/// # Errors
/// In words: a name that is not there, or an output that the schema does not take.
pub fn final_output(
    metadata: &WorkflowMetadata,
    scope: &MachineScope<'_>,
) -> Result<Option<Value>, String> {
    let Some(template) = &metadata.output_template else { return Ok(None) };
    let rendered = object(template, scope)?;
    let Some(schema) = &metadata.output_schema else { return Ok(Some(rendered)) };
    let schema = Value::Object(schema.clone());
    let output = coerced(rendered, &schema);
    let validator = json_schema::validator(&schema)?;
    let fault = validator.iter_errors(&output).next().map(|error| {
        let place = error.instance_path().as_str().trim_start_matches('/').to_owned();
        format!("`output_schema` at /{place}: {}", error.masked_with("the value"))
    });
    fault.map_or(Ok(Some(output)), Err)
}

fn object(template: &JsonObject, scope: &MachineScope<'_>) -> Result<Value, String> {
    let member = |(key, value): (&String, &Value)| {
        let value = filled(value, scope).map_err(|why| match value {
            Value::String(_) => format!("`{key:.80}`: {why}"),
            _ => why,
        })?;
        Ok((key.clone(), value))
    };
    template.iter().map(member).collect::<Result<_, String>>().map(Value::Object)
}

fn filled(template: &Value, scope: &MachineScope<'_>) -> Result<Value, String> {
    match template {
        Value::String(text) => scope.value(text),
        Value::Array(list) => list.iter().map(|item| filled(item, scope)).collect(),
        Value::Object(members) => object(members, scope),
        other => Ok(other.clone()),
    }
}

/// Value that a schema wants of a text or a number; others stay as they are.
fn coerced(value: Value, schema: &Value) -> Value {
    let wanted = schema["type"].as_str().unwrap_or_default();
    let value = match (wanted, value) {
        ("integer", Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => Value::String(text),
        },
        ("integer", Value::Number(number)) => {
            Value::Number(json_text::integer(&number).unwrap_or(number))
        }
        ("number" | "boolean" | "object" | "array", Value::String(text)) => {
            let parsed = json_text::from_str::<Value>(text.trim()).ok();
            let fits = |parsed: &Value| match wanted {
                "number" => parsed.is_number(),
                "boolean" => parsed.is_boolean(),
                "object" => parsed.is_object(),
                _ => parsed.is_array(),
            };
            parsed.filter(fits).unwrap_or(Value::String(text))
        }
        (
            "string",
            value @ (Value::Number(_) | Value::Bool(_) | Value::Object(_) | Value::Array(_)),
        ) => Value::String(value.to_string()),
        (_, value) => value,
    };
    match value {
        Value::Object(members) => {
            let member = |(key, value): (String, Value)| {
                let value = match schema["properties"].get(&key) {
                    Some(schema) => coerced(value, schema),
                    None => value,
                };
                (key, value)
            };
            Value::Object(members.into_iter().map(member).collect())
        }
        Value::Array(list) => {
            let items = &schema["items"];
            Value::Array(list.into_iter().map(|item| coerced(item, items)).collect())
        }
        value => value,
    }
}
