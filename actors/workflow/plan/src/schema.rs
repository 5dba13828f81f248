//! Values by the JSON Schemas that DAGs have for them.

use hivekeep_manifest::common::JsonObject;
use hivekeep_runtime::json_schema;
use serde_json::Value;

/// Most faults that are told.
const MOST_FAULTS: usize = 20;

/// Checks a value. What has references may become anything, and is not looked at.
///
/// # Errors
/// Faults in words, without the values.
pub fn fits(schema: &JsonObject, value: &Value) -> Result<(), Vec<String>> {
    let validator =
        json_schema::validator(&Value::Object(schema.clone())).map_err(|why| vec![why])?;
    let is_known = |error: &json_schema::ValidationError<'_>| {
        !error.instance().as_str().is_some_and(|text| text.contains("${"))
    };
    let told = |error: json_schema::ValidationError<'_>| {
        let path = error.instance_path().as_str().trim_start_matches('/').to_owned();
        format!("/{path}: {}", error.masked_with("the value"))
    };
    let faults = validator.iter_errors(value).filter(is_known).take(MOST_FAULTS).map(told);
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Adds the defaults of a schema to an object, and to those in it.
pub(crate) fn add_defaults(schema: &Value, object: &mut JsonObject) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, schema) in properties {
        if let Some(default) = schema.get("default").filter(|_| !object.contains_key(name)) {
            object.insert(name.clone(), default.clone());
        }
        if let Some(Value::Object(inner)) = object.get_mut(name) {
            add_defaults(schema, inner);
        }
    }
}
