//! A pretty-printer of JSON schemas: the type of a field, with its bounds, in a few words.

use serde_json::Value;

/// Alternatives and arrays within each other that are told; schemas refer to themselves.
const MAX_NESTING: usize = 6;

/// The type of a property of `root`, values in backticks: ``integer, 1 to 100``,
/// ``array of string, at most 20 items``, ```"a"` or `"b"` or null``.
pub fn kind(schema: &Value, root: &Value) -> String {
    kind_within(schema, root, MAX_NESTING)
}

fn kind_within(schema: &Value, root: &Value, nesting: usize) -> String {
    let Some(nesting) = nesting.checked_sub(1) else { return "more".to_owned() };
    let schema = resolve(schema, root);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(" or ");
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(all) = schema.get(key).and_then(Value::as_array) {
            let kinds: Vec<_> = all.iter().map(|one| kind_within(one, root, nesting)).collect();
            return kinds.join(" or ");
        }
    }
    let names: Vec<_> = match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return "any".to_owned(),
    };
    let named = names.iter().map(|name| one(name, schema, root, nesting)).collect::<Vec<_>>();
    named.join(" or ")
}

/// Text for a type that the schema names, with its bounds.
fn one(name: &str, schema: &Value, root: &Value, nesting: usize) -> String {
    // Where the bound is that of the number's own type it says nothing.
    let number = |key: &str| schema[key].as_u64().filter(|bound| *bound < i32::MAX as u64);
    let range = |least: &str, most: &str| match (number(least), number(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        (None | Some(0), None) => None,
        (Some(least), None) => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
    };
    let (text, bounds) = match name {
        "array" => {
            let items = schema
                .get("items")
                .map(|items| format!("array of {}", kind_within(items, root, nesting)));
            let bounds = range("minItems", "maxItems").map(|range| format!("{range} items"));
            (items.unwrap_or_else(|| name.to_owned()), bounds)
        }
        "string" => {
            let length = range("minLength", "maxLength");
            (name.to_owned(), length.map(|length| format!("{length} characters")))
        }
        "integer" | "number" => (name.to_owned(), range("minimum", "maximum")),
        _ => (name.to_owned(), None),
    };
    let bounds = bounds.map(|bounds| match bounds.as_str() {
        "at least 1 items" | "at least 1 characters" => "not empty".to_owned(),
        _ => bounds,
    });
    bounds.map_or(text.clone(), |bounds| format!("{text}, {bounds}"))
}

/// The schema that a schema refers to, or itself.
pub fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let name =
        schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/"));
    name.and_then(|name| root.get("$defs")?.get(name)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_refers_to_itself_is_told() {
        let nested = json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#/$defs/A" } }] });
        let root = json!({ "$defs": { "A": nested } });
        let told = kind(&root["$defs"]["A"], &root);
        assert!(told.starts_with("string or array of string or") && told.len() < 200, "{told}");
    }

    #[test]
    fn a_type_is_told_with_its_bounds() {
        let root = json!({ "$defs": { "Place": { "enum": ["here", "there"] } } });
        for (schema, told) in [
            (json!({ "type": "integer", "minimum": 1, "maximum": 100 }), "integer, 1 to 100"),
            (json!({ "type": "integer", "minimum": 0, "format": "uint" }), "integer"),
            (json!({ "type": ["integer", "null"], "maximum": 9 }), "integer, at most 9 or null"),
            (json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }), "integer"),
            (json!({ "type": "string", "minLength": 1 }), "string, not empty"),
            (
                json!({ "type": "string", "minLength": 1, "maxLength": 9 }),
                "string, 1 to 9 characters",
            ),
            (
                json!({ "type": ["array", "null"], "items": { "type": "string" }, "maxItems": 20 }),
                "array of string, at most 20 items or null",
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/$defs/Place" }, { "type": "null" }] }),
                "`\"here\"` or `\"there\"` or null",
            ),
            (json!({ "type": "array" }), "array"),
            (json!({ "const": true }), "`true`"),
            (json!({}), "any"),
        ] {
            assert_eq!(kind(&schema, &root), told, "{schema}");
        }
    }
}
