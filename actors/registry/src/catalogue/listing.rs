//! Tools as MCP describes them, with schemas as a model needs them.
//!
//! A schema takes fewer bytes than the one that it is made from. What is valid stays so; the daemon
//! checks calls against the whole schema.
//! - What says nothing goes: a default of null, the bounds of a 32-bit number, the description of a
//!   definition whose every use has one of its own.
//! - Named constants that each have a description become one `enum`, whose description tells them.
//! - A definition that is used once and has no address of its own stands where it is used; what is
//!   used more often is shared.
//! - The lines of a doc comment are joined to paragraphs.

use hivekeep_kernel::{Effect, ToolSpec};
use serde_json::{Map, Value, json};

use super::{Catalogue, ToolEntry, ToolView};

/// Keywords whose value maps names to schemas.
const NAMED: [&str; 4] = ["properties", "$defs", "patternProperties", "dependentSchemas"];
/// Keywords whose value is a schema, or a list of them.
const BELOW: [&str; 9] = [
    "items",
    "prefixItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
];

/// The MCP tool objects of a view, in the order of declaration. One source for
/// `tools/list`, `hivekeep tools --json` and the contract check.
pub fn mcp_listing(catalogue: &Catalogue, view: &ToolView) -> Vec<Value> {
    catalogue.visible(view).map(|entry| mcp_tool(entry, view)).collect()
}

/// A tool as MCP lists it. Without its output schema unless the view has output schemas: a result
/// is structured either way, and a client checks it only against a schema that it was given.
pub fn mcp_tool(entry: &ToolEntry, view: &ToolView) -> Value {
    let spec = entry.spec;
    let mut tool = json!({
        "name": view.name(entry.spec),
        "title": spec.title,
        "description": joined(&entry.description),
        "inputSchema": slim(&entry.input_schema),
        "annotations": annotations(spec),
    });
    if let Some(schema) = entry.output_schema.as_ref().filter(|_| view.output_schemas) {
        tool["outputSchema"] = slim(schema);
    }
    tool
}

fn annotations(spec: &ToolSpec) -> Value {
    json!({
        "title": spec.title,
        "readOnlyHint": spec.effect == Effect::Read,
        "destructiveHint": spec.effect == Effect::Destroy,
        "idempotentHint": matches!(spec.effect, Effect::Read | Effect::Idempotent),
        "openWorldHint": spec.open_world,
    })
}

/// The schema for a listing.
fn slim(schema: &Value) -> Value {
    let mut root = schema.clone();
    each(&mut root, &mut plain);
    drop_repeated(&mut root);
    inline(&mut root);
    root
}

/// A text of a doc comment with its paragraphs on one line each; lists and code stay as they are.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let first = line.chars().next();
        let begins = first.is_none_or(|c| !c.is_alphanumeric() && !"`(\"".contains(c))
            || first.is_some_and(|c| c.is_ascii_digit());
        if !joined.is_empty() {
            joined.push(if begins || joined.ends_with('\n') { '\n' } else { ' ' });
        }
        joined.push_str(line);
    }
    joined
}

/// Visits every schema, those below first.
fn each(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(map) => {
            for (key, below) in map.iter_mut() {
                match below {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        named.values_mut().for_each(|one| each(one, visit));
                    }
                    _ if BELOW.contains(&key.as_str()) => each(below, visit),
                    _ => {}
                }
            }
            visit(map);
        }
        Value::Array(list) => list.iter_mut().for_each(|one| each(one, visit)),
        _ => {}
    }
}

fn plain(schema: &mut Map<String, Value>) {
    schema.retain(|key, value| match key.as_str() {
        "default" => !value.is_null(),
        "maximum" => *value != json!(u32::MAX) && *value != json!(i32::MAX),
        "minimum" => *value != json!(i32::MIN),
        _ => true,
    });
    constants(schema);
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = joined(text);
    }
}

/// Makes one `enum` of alternatives that are all constant strings.
fn constants(schema: &mut Map<String, Value>) {
    let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let constant = |one: &Value| Some((one.get("const")?.as_str()?.to_owned(), one.clone()));
    let Some(all) = alternatives.iter().map(constant).collect::<Option<Vec<_>>>() else { return };
    let told = all.iter().filter_map(|(name, one)| {
        let about = one.get("description")?.as_str()?.trim_end_matches('.');
        Some(format!("`{name}`: {about}"))
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), json!(names));
    if !told.is_empty() {
        // The descriptions of the constants replace the one of the whole.
        schema.insert("description".to_owned(), json!(format!("{told}.")));
    }
}

fn target(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// Drops the description of an object's definition that is described wherever it is used.
fn drop_repeated(root: &mut Value) {
    let mut bare = Vec::new();
    each(root, &mut |schema| {
        if !schema.contains_key("description") {
            bare.extend(target(schema).map(str::to_owned));
        }
        // `anyOf: [X, null]` with a description describes X.
        if schema.contains_key("description")
            && let Some(Value::Array(any)) = schema.get("anyOf")
        {
            for name in any.iter().filter_map(|one| target(one.as_object()?)) {
                if let Some(at) = bare.iter().rposition(|one| one == name) {
                    bare.remove(at);
                }
            }
        }
    });
    let Some(Value::Object(definitions)) = root.get_mut("$defs") else { return };
    for (name, definition) in definitions {
        let Value::Object(definition) = definition else { continue };
        if !bare.contains(name) && !definition.contains_key("enum") {
            definition.remove("description");
        }
    }
}

/// Puts definitions that are used once where they are used.
fn inline(root: &mut Value) {
    loop {
        let mut uses: Vec<(String, Vec<String>)> = Vec::new();
        each(root, &mut |schema| {
            let beside = schema.keys().cloned().collect();
            uses.extend(target(schema).map(|name| (name.to_owned(), beside)));
        });
        let Some(Value::Object(definitions)) = root.get_mut("$defs") else { return };
        // A keyword that both have, and that is no annotation, would be lost; what has an address may be
        // referred to by it.
        let clash = |key: &String, definition: &Value| {
            definition.get(key).is_some() && !["description", "default"].contains(&key.as_str())
        };
        let addressed = |definition: &Value| {
            ["$id", "$anchor", "$dynamicAnchor"].iter().any(|key| definition.get(key).is_some())
        };
        let fits = |(name, definition): &(&String, &Value)| {
            let mut those = uses.iter().filter(|(used, _)| used == *name);
            let first = those.next();
            !addressed(definition)
                && those.next().is_none()
                && first.is_some_and(|(_, keys)| !keys.iter().any(|key| clash(key, definition)))
        };
        let Some((name, _)) = definitions.iter().find(fits) else { break };
        let name = name.clone();
        let Some(Value::Object(definition)) = definitions.remove(&name) else { break };
        each(root, &mut |schema| {
            if target(schema) == Some(&name) {
                schema.remove("$ref");
                merge(schema, &definition);
            }
        });
    }
    if root["$defs"].as_object().is_some_and(Map::is_empty)
        && let Value::Object(root) = root
    {
        root.remove("$defs");
    }
}

/// Adds a definition to the keywords that stand beside its reference; of two descriptions that of an
/// `enum`, which tells its values, follows the other.
fn merge(schema: &mut Map<String, Value>, definition: &Map<String, Value>) {
    for (key, value) in definition {
        match (schema.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more)) if key == "description" => {
                if definition.contains_key("enum") {
                    *text = format!("{text} {more}");
                }
            }
            (Some(_), _) => {}
            (None, value) => drop(schema.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_goes_and_what_is_used_once_stands_there() {
        let whole = json!({
            "type": "object",
            "properties": {
                "title": { "type": ["string", "null"], "default": null, "description": "The\nname." },
                "kind": { "anyOf": [{ "$ref": "#/$defs/Kind" }, { "type": "null" }],
                    "description": "Which." },
                "size": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                "from": { "$ref": "#/$defs/Point", "description": "From." },
                "to": { "$ref": "#/$defs/Point", "description": "To." },
                "tree": { "$ref": "#/$defs/Tree" },
            },
            "$defs": {
                "Kind": { "description": "A kind.", "oneOf": [
                    { "type": "string", "const": "a", "description": "The first." },
                    { "type": "string", "const": "b", "description": "The other." },
                ] },
                "Point": { "type": "object", "description": "A point.",
                    "properties": { "x": { "type": "number" } } },
                "Tree": { "description": "A tree.", "type": "array",
                    "items": { "$ref": "#/$defs/Tree" } },
            },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "title": { "type": ["string", "null"], "description": "The name." },
                "kind": { "anyOf": [
                    { "type": "string", "enum": ["a", "b"],
                        "description": "`a`: The first; `b`: The other." },
                    { "type": "null" },
                ], "description": "Which." },
                "size": { "type": "integer", "minimum": 0 },
                "from": { "$ref": "#/$defs/Point", "description": "From." },
                "to": { "$ref": "#/$defs/Point", "description": "To." },
                "tree": { "$ref": "#/$defs/Tree" },
            },
            "$defs": {
                "Point": { "type": "object", "properties": { "x": { "type": "number" } } },
                "Tree": { "description": "A tree.", "type": "array",
                    "items": { "$ref": "#/$defs/Tree" } },
            },
        });
        assert_eq!(slim(&whole), expected);
    }

    #[test]
    fn what_would_change_the_meaning_stays_as_it_is() {
        let same = |schema: Value| assert_eq!(slim(&schema), schema);
        // Constants of which some are no texts; a keyword that both have; what has an address.
        same(json!({ "oneOf": [{ "const": "a" }, { "const": 1 }] }));
        same(
            json!({ "properties": { "a": { "$ref": "#/$defs/A", "type": "string" } }, "$defs": { "A": { "type": "null" } } }),
        );
        for key in ["$id", "$anchor", "$dynamicAnchor"] {
            same(
                json!({ "properties": { "a": { "$ref": "#/$defs/A" } }, "$defs": { "A": { key: "x", "type": "null" } } }),
            );
        }
        same(json!({ "properties": { "a": { "minimum": 0, "maximum": 7, "default": false } } }));
        // Names of properties are no keywords.
        same(
            json!({ "properties": { "maximum": { "type": "null" }, "items": { "enum": [null] } } }),
        );
    }

    #[test]
    fn bounds_of_32_bits_go_and_constants_without_words_are_told_by_nothing() {
        let bounds = json!({ "items": [{ "minimum": i32::MIN, "maximum": i32::MAX }] });
        assert_eq!(slim(&bounds), json!({ "items": [{}] }));
        let constants =
            json!({ "description": "Both.", "oneOf": [{ "const": "a" }, { "const": "b" }] });
        let told = json!({ "description": "Both.", "type": "string", "enum": ["a", "b"] });
        assert_eq!(slim(&constants), told);
    }

    #[test]
    fn a_definition_that_is_used_once_brings_what_its_use_has_not() {
        let used = |definition: Value| {
            let used = json!({ "$ref": "#/$defs/A", "description": "Here.", "default": "a" });
            slim(&json!({ "properties": { "a": used }, "$defs": { "A": definition } }))["properties"]["a"].clone()
        };
        let plain = used(json!({ "type": "string", "default": "b", "description": "Any." }));
        assert_eq!(plain, json!({ "type": "string", "default": "a", "description": "Here." }));
        let named = used(json!({ "enum": ["a"], "description": "`a`: it." }));
        assert_eq!(
            named,
            json!({ "enum": ["a"], "default": "a", "description": "Here. `a`: it." })
        );
        // A use without words needs those of the definition.
        let bare = json!({ "properties": {
            "a": { "$ref": "#/$defs/A" }, "b": { "$ref": "#/$defs/A", "description": "B." } },
            "$defs": { "A": { "type": "null", "description": "Any." } } });
        assert_eq!(slim(&bare), bare);
    }

    #[test]
    fn paragraphs_are_joined_and_lists_are_not() {
        assert_eq!(joined("One\ntwo.\n\nThree:\n- a\n- b"), "One two.\n\nThree:\n- a\n- b");
        assert_eq!(joined("See\n`this`\n(or)\n\"that\"\n1. a"), "See `this` (or) \"that\"\n1. a");
    }
}
