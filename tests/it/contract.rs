//! The tools keep their contract: `tests/contract/tools.json`, frozen
//! from the reference that clients were written against. Names, parameters, what
//! is required, and that everything is described.

use std::process::Command;

use serde_json::{Value, json};

const FROZEN: &str = include_str!("../contract/tools.json");

/// Required by the frozen families, optional in the union with a later one: without
/// a workspace these work in the session's own root.
const UNION_OPTIONAL: [&str; 3] = ["file_read", "file_write", "file_edit"];

/// The parameters of a tool, with those of its actions; true where required.
fn parameters(tool: &Value) -> Vec<(&str, bool)> {
    let rows = tool["params"].as_array().expect("a frozen tool has parameters");
    let mut all: Vec<_> = rows.iter().map(|row| (name(row), row["required"] == true)).collect();
    for action in tool["actions"].as_object().into_iter().flat_map(|actions| actions.values()) {
        for list in ["required", "optional"] {
            for name in action[list].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !all.iter().any(|(known, _)| *known == name) {
                    // Required by one action only, so the schema leaves it optional.
                    all.push((name, false));
                }
            }
        }
    }
    all
}

fn name(row: &Value) -> &str {
    row["name"].as_str().expect("every row is named")
}

/// Follows `$ref` within the schema.
fn resolve<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    root.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null)
}

fn breaches(want: &Value, listed: Option<&Value>) -> Vec<String> {
    let tool_name = name(want);
    let Some(tool) = listed else { return vec![format!("{tool_name}: not listed")] };
    let schema = &tool["inputSchema"];
    let mut found = Vec::new();
    let mut add = |what: String| found.push(format!("{tool_name}: {what}"));
    for (field, required) in parameters(want) {
        let Some(property) = schema["properties"].get(field) else {
            add(format!("parameter {field} is missing"));
            continue;
        };
        let listed = schema["required"].as_array().into_iter().flatten().any(|is| is == field);
        let union = field == "workspace_id" && UNION_OPTIONAL.contains(&tool_name);
        if required && !listed && !union {
            add(format!("parameter {field} should be required"));
        }
        if !required && listed {
            add(format!("parameter {field} should be optional"));
        }
        let described = |schema: &Value| schema["description"].is_string();
        if !described(property) && !described(resolve(property, schema)) {
            add(format!("parameter {field} has no description"));
        }
    }
    if schema["type"] != "object" {
        add("its input is not an object".to_owned());
    }
    for key in ["description", "annotations", "outputSchema"] {
        if tool[key].is_null() {
            add(format!("it has no {key}"));
        }
    }
    found
}

#[test]
fn the_listing_keeps_the_frozen_contract() {
    let hivekeep = env!("CARGO_BIN_EXE_hivekeep");
    let listing = Command::new(hivekeep).args(["tools", "--json"]).output().unwrap();
    assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let listing: Value = serde_json::from_slice(&listing.stdout).unwrap();
    let tools = listing.as_array().or_else(|| listing["tools"].as_array()).unwrap();
    let frozen: Vec<Value> = serde_json::from_str(FROZEN).unwrap();
    assert_eq!(frozen.len(), 171);
    let listed = |want: &Value| tools.iter().find(|tool| name(tool) == name(want));
    let found: Vec<_> = frozen.iter().flat_map(|want| breaches(want, listed(want))).collect();
    assert!(found.is_empty(), "breaches of tests/contract/tools.json:\n  {}", found.join("\n  "));
}

#[test]
fn each_kind_of_breach_is_seen() {
    let want = json!({ "name": "exec", "params": [
        { "name": "command", "required": true }, { "name": "timeout_secs", "required": false },
    ], "actions": { "kill": { "required": ["job_id"], "optional": [] } } });
    let field = json!({ "type": "string", "description": "d" });
    let good = json!({ "name": "exec", "description": "d", "annotations": {}, "outputSchema": {},
        "inputSchema": { "type": "object", "required": ["command"],
            "properties": { "command": field, "timeout_secs": field, "job_id": field } } });
    assert_eq!(breaches(&want, Some(&good)), Vec::<String>::new());
    assert_eq!(breaches(&want, None).len(), 1);
    for (pointer, bad) in [
        ("/inputSchema/required", json!([])),
        ("/inputSchema/required", json!(["command", "timeout_secs"])),
        ("/inputSchema/properties/command", json!({ "type": "string" })),
        ("/inputSchema/properties", json!({ "command": field, "timeout_secs": field })),
        ("/inputSchema/type", json!("string")),
        ("/description", Value::Null),
        ("/outputSchema", Value::Null),
    ] {
        let mut tool = good.clone();
        *tool.pointer_mut(pointer).unwrap() = bad;
        assert_eq!(breaches(&want, Some(&tool)).len(), 1, "{pointer}");
    }
}
