//! The `config.toml` that ships: every key, its documentation, its default.

use std::fmt::Write;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Config;

const HEAD: &str = "\
# hivekeep's configuration: every key with its default.
#
# A key can also be set as HIVEKEEP_SECTION__KEY in the environment, or with
# `--set section.key=value`; later wins. `hivekeep config` shows what is in force.
# This file is generated: `hivekeep config --default > config.toml`.
";

/// JSON Schema of the configuration, each section in its place.
pub(crate) fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

/// The text of the shipped file.
pub fn shipped() -> String {
    let schema = schema();
    let defaults = serde_json::to_value(Config::default()).expect("options are plain data");
    let mut text = HEAD.to_owned();
    let sections = defaults.as_object().expect("the configuration has sections");
    for (name, section) in sections {
        let section = section.as_object().expect("a section has keys");
        table(&mut text, name, section, &schema["properties"][name]);
    }
    text
}

fn table(text: &mut String, path: &str, keys: &Map<String, Value>, schema: &Value) {
    text.push('\n');
    comment(text, schema);
    let _ = writeln!(text, "[{path}]");
    let is_table = |value: &Value| value.as_object().is_some_and(|below| !below.is_empty());
    for (key, value) in keys.iter().filter(|(_, value)| !is_table(value)) {
        comment(text, &schema["properties"][key]);
        let _ = match value {
            Value::Null => write!(text, "# {key} ="),
            value => write!(text, "{key} = {}", spell(value)),
        };
        let (least, most) = bounds(&schema["properties"][key]);
        if least.is_some() || most.is_some() {
            let _ = write!(text, "  # {}", told(least, most));
        }
        text.push('\n');
    }
    for (key, value) in keys.iter().filter(|(_, value)| is_table(value)) {
        let below = value.as_object().expect("it was just seen to be a table");
        table(text, &format!("{path}.{key}"), below, &schema["properties"][key]);
    }
}

fn comment(text: &mut String, schema: &Value) {
    for line in schema["description"].as_str().unwrap_or_default().lines() {
        let _ = writeln!(text, "# {line}");
    }
}

/// The least and the greatest number that a key takes; that none is negative says its type.
pub(super) fn bounds(schema: &Value) -> (Option<i64>, Option<i64>) {
    let least = schema["minimum"].as_i64().filter(|least| *least > 0);
    (least, schema["maximum"].as_i64())
}

/// Bounds in words.
pub(super) fn told(least: Option<i64>, most: Option<i64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("from {least} to {most}"),
        (None, Some(most)) => format!("at most {most}"),
        (least, None) => format!("at least {}", least.unwrap_or_default()),
    }
}

fn spell(value: &Value) -> String {
    match value {
        Value::Object(keys) => {
            let pairs: Vec<_> = keys.iter().map(|(k, v)| format!("{k} = {}", spell(v))).collect();
            format!("{{ {} }}", pairs.join(", ")).replace("{  }", "{}")
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let rows: String = items.iter().map(|item| format!("    {},\n", spell(item))).collect();
            format!("[\n{rows}]")
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(spell).collect::<Vec<_>>().join(", "))
        }
        // JSON's spelling of strings, numbers and booleans is TOML's.
        other => other.to_string(),
    }
}
