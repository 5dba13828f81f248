//! Declarations as clients take them: names, texts, and schemas.
//!
//! From the schemas of schemars to schemas that strict clients take:
//! - `$schema`, and title and description of the root, go: the draft is
//!   2020-12 by the protocol, and the tool has both texts already.
//! - Formats that JSON Schema does not know (`uint32`, `double`, ...) go; what
//!   they meant for integers is said by bounds, which validators enforce.
//! - The root says `"type": "object"` and has properties.

use hivekeep_kernel::ToolInfo;
use schemars::Schema;
use serde_json::{Map, Value, json};

use super::{
    CatalogueError,
    actions::{self, Actions},
};

/// An input schema: one object at the root, no alternatives there, because the
/// model providers' interfaces refuse them; those of actions become one object.
pub(super) fn input(schema: Schema) -> Result<(Value, Option<Actions>), String> {
    let mut root = tidy(schema)?;
    let actions = actions::flatten(&mut root)?;
    if let Some(key) = ["oneOf", "anyOf", "allOf"].into_iter().find(|key| root.contains_key(*key)) {
        return Err(format!("has `{key}` at its root; clients take one plain object"));
    }
    Ok((finish(root)?, actions))
}

/// An output schema: alternatives at the root are fine as long as each is an
/// object.
pub(super) fn output(schema: Schema) -> Result<Value, String> {
    let mut root = tidy(schema)?;
    if !root.contains_key("type") {
        let alternatives = ["oneOf", "anyOf"].iter().find_map(|key| root.get(*key));
        let objects = alternatives
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().all(|one| is_object(one, &root)));
        if objects {
            root.insert("type".to_owned(), json!("object"));
        }
    }
    finish(root)
}

fn tidy(schema: Schema) -> Result<Map<String, Value>, String> {
    let Value::Object(mut root) = schema.to_value() else {
        return Err("is not a JSON object".to_owned());
    };
    for key in ["$schema", "title", "description"] {
        root.remove(key);
    }
    root.values_mut().for_each(formats);
    Ok(root)
}

fn finish(mut root: Map<String, Value>) -> Result<Value, String> {
    if root.get("type") != Some(&json!("object")) {
        return Err("is not an object at its root".to_owned());
    }
    if !root.contains_key("oneOf") && !root.contains_key("anyOf") {
        root.entry("properties").or_insert_with(|| json!({}));
    }
    Ok(Value::Object(root))
}

fn is_object(schema: &Value, root: &Map<String, Value>) -> bool {
    let name =
        schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/"));
    let target = name.and_then(|name| root.get("$defs")?.get(name));
    target.unwrap_or(schema).get("type") == Some(&json!("object"))
}

/// Replaces the formats of Rust's numbers by bounds, at every depth.
fn formats(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(bounds) = map.get("format").and_then(Value::as_str).and_then(bounds) {
                map.remove("format");
                for (key, bound) in [("minimum", bounds.0), ("maximum", bounds.1)] {
                    if let Some(bound) = bound {
                        map.entry(key).or_insert(bound);
                    }
                }
            }
            map.values_mut().for_each(formats);
        }
        Value::Array(items) => items.iter_mut().for_each(formats),
        _ => {}
    }
}

/// The bounds of a Rust number's format. 64-bit bounds stay unsaid: a client
/// whose numbers are doubles would misread them.
fn bounds(format: &str) -> Option<(Option<Value>, Option<Value>)> {
    let range = |low: i64, high: i64| Some((Some(json!(low)), Some(json!(high))));
    match format {
        "uint8" => range(0, u8::MAX.into()),
        "uint16" => range(0, u16::MAX.into()),
        "uint32" => range(0, u32::MAX.into()),
        "int8" => range(i8::MIN.into(), i8::MAX.into()),
        "int16" => range(i16::MIN.into(), i16::MAX.into()),
        "int32" => range(i32::MIN.into(), i32::MAX.into()),
        "uint" | "uint64" | "uint128" => Some((Some(json!(0)), None)),
        "int" | "int64" | "int128" | "float" | "double" => Some((None, None)),
        _ => None,
    }
}

/// Names that every client takes, up to the dots (see [`super::NameStyle`]).
pub(super) fn check_name(name: &str) -> Result<(), CatalogueError> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
    if (3..=64).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(CatalogueError::BadName(name.to_owned()))
}

/// A title, a description, and a description of every input property.
pub(super) fn check_texts(
    info: &ToolInfo,
    description: &str,
    input: &Value,
) -> Result<(), CatalogueError> {
    let missing = |what: String| CatalogueError::Undescribed { tool: info.spec.name, what };
    if info.spec.title.trim().is_empty() {
        return Err(missing("title".to_owned()));
    }
    if description.trim().is_empty() {
        return Err(missing("description".to_owned()));
    }
    match undescribed(input, "") {
        Some(property) => Err(missing(format!("description of the property {property}"))),
        None => Ok(()),
    }
}

/// The path of the first property without a description, here or below.
fn undescribed(schema: &Value, at: &str) -> Option<String> {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                for (name, property) in properties {
                    let constant = property.get("const").is_some();
                    if !constant && property.get("description").is_none() {
                        return Some(format!("{at}/{name}"));
                    }
                }
            }
            map.iter().find_map(|(key, below)| undescribed(below, &format!("{at}/{key}")))
        }
        Value::Array(items) => items.iter().find_map(|item| undescribed(item, at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;

    #[test]
    fn formats_of_rust_become_bounds_and_those_of_json_schema_stay() {
        let of = |format: &str| {
            let schema =
                json_schema!({ "type": "object", "properties": { "a": [{ "format": format }] } });
            output(schema).expect("an object")["properties"]["a"][0].clone()
        };
        for (format, low, high) in [
            ("uint8", 0, i64::from(u8::MAX)),
            ("uint16", 0, i64::from(u16::MAX)),
            ("uint32", 0, i64::from(u32::MAX)),
            ("int8", i64::from(i8::MIN), i64::from(i8::MAX)),
            ("int16", i64::from(i16::MIN), i64::from(i16::MAX)),
            ("int32", i64::from(i32::MIN), i64::from(i32::MAX)),
        ] {
            assert_eq!(of(format), json!({ "minimum": low, "maximum": high }), "{format}");
        }
        for format in ["uint", "uint64", "uint128"] {
            assert_eq!(of(format), json!({ "minimum": 0 }), "{format}");
        }
        for format in ["int", "int64", "int128", "float", "double"] {
            assert_eq!(of(format), json!({}), "{format}");
        }
        assert_eq!(of("date-time"), json!({ "format": "date-time" }));
        let own = json_schema!({ "type": "object", "properties": { "a": { "format": "uint8", "maximum": 7 } } });
        let bounded = json!({ "minimum": 0, "maximum": 7 });
        assert_eq!(output(own).expect("an object")["properties"]["a"], bounded);
    }

    #[test]
    fn an_output_of_several_objects_is_an_object_without_properties() {
        let either = json_schema!({ "title": "T", "oneOf": [{ "type": "object" }] });
        assert_eq!(
            output(either),
            Ok(json!({ "type": "object", "oneOf": [{ "type": "object" }] }))
        );
        let plain = json_schema!({ "type": "object", "$schema": "s", "description": "d" });
        assert_eq!(output(plain), Ok(json!({ "type": "object", "properties": {} })));
        assert!(output(json_schema!({ "type": "string" })).is_err());
        for key in ["oneOf", "anyOf", "allOf"] {
            assert!(input(json_schema!({ "type": "object", key: [{}] })).is_err(), "{key}");
        }
    }

    #[test]
    fn names_have_from_3_to_64_characters() {
        let fits = |name: &str| check_name(name).is_ok();
        assert!(fits("a.1") && fits(&"_".repeat(64)) && fits("z09"));
        assert!(!fits("ab") && !fits(&"a".repeat(65)) && !fits("A_b") && !fits("a-b"));
    }

    #[test]
    fn each_parameter_is_described_wherever_it_is() {
        let below = |schema: Value| json!({ "properties": { "a": { "description": "x", "items": [schema] } } });
        let found = |schema: Value| undescribed(&schema, "");
        assert_eq!(
            found(below(json!({ "properties": { "b": {} } }))).as_deref(),
            Some("/properties/a/items/b")
        );
        assert_eq!(found(below(json!({ "properties": { "b": { "const": 1 } } }))), None);
        assert_eq!(found(json!({ "properties": { "a": {} } })).as_deref(), Some("/a"));
    }
}
