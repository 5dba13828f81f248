//! The configuration: total, strict, layered, and able to say where each value
//! came from.
//!
//! ```text
//! defaults ─▶ config.toml ─▶ HIVEKEEP_SECTION__KEY ─▶ flags ─▶ checks ─▶ Config
//! ```
//!
//! Every value is a leaf with a source. Leaves are judged one by one, so one run
//! reports every error with its file and line or variable name. (The `config`
//! crate stops at the first error and knows no lines.)
#![warn(missing_docs)]
// The demo's daemon has no section for some doors whose options are here.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

mod daemon;
pub mod families;
mod http;
mod layers;
mod leaves;
mod renamed;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use hivekeep_runtime::{Family, FamilyOptions as _};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::families::families;

pub use daemon::LOG_FILE;
pub use daemon::{DaemonFolders, DaemonOptions};
pub use http::{E2bOptions, HttpApiOptions, HttpOptions, McpHttpOptions, PortUrlOptions};
pub use layers::{ConfigEntry, ConfigSources, LoadedConfig, load};
pub use leaves::{ConfigProblem, ConfigProblems, ProblemSource};

macro_rules! config {
    ($($(#[$attribute:meta])* $name:ident: $family:ty,)+) => {
        /// All options of the daemon.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            /// The process itself: folders, socket, logs, stopping.
            pub daemon: DaemonOptions,
            /// Doors over HTTP: a table for each, and what all have in common.
            pub http: HttpOptions,
            /// The journal.
            pub store: hivekeep_store::Options,
            /// The audit log: each tool call, by whom, and what became of it.
            pub audit: hivekeep_audit::Options,
            /// The registry: sessions, rates, quotas, admission.
            pub registry: hivekeep_registry::Options,
            /// Policy: who may call what, and what a person has to approve.
            pub policy: hivekeep_policy::Options,
            $($(#[$attribute])* pub $name: <$family as Family>::Options,)+
        }

        impl Config {
            /// Settings that families cannot work with: whole keys, each with the reason.
            #[allow(unused_doc_comments)]
            fn problems_of_families(&self) -> Vec<(String, String)> {
                let mut wrong = Vec::new();
                let kinds: Vec<&str> =
                    [$($(#[$attribute])* <$family as Family>::HOLDS,)+].concat();
                for (tier, set) in &self.registry.tiers {
                    for kind in set.holds.keys().filter(|kind| !kinds.contains(&kind.as_str())) {
                        let why = format!("`{kind}` is not one of {}", kinds.join(", "));
                        wrong.push((format!("registry.tiers.{tier}.holds"), why));
                    }
                }
                $($(#[$attribute])* {
                    let own = self.$name.problems().into_iter();
                    let named = |(key, why)| (format!("{}.{key}", stringify!($name)), why);
                    wrong.extend(own.map(named));
                    let store = self.$name.store_problems(&self.store).into_iter();
                    wrong.extend(store.map(|(key, why)| (format!("store.{key}"), why)));
                })+
                wrong
            }
        }
    };
}
families!(config);

/// Head of the `config.toml` that ships.
const HEAD: &str = "\
# hivekeep's configuration: every key with its default.
#
# A key can also be set as HIVEKEEP_SECTION__KEY in the environment, or with
# `--set section.key=value`; later wins. `hivekeep config` shows what is in force.
# This file is generated: `hivekeep config --default > config.toml`.
";

/// JSON Schema of the configuration, each section in its place.
pub fn schema() -> Value {
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
fn bounds(schema: &Value) -> (Option<i64>, Option<i64>) {
    let least = schema["minimum"].as_i64().filter(|least| *least > 0);
    (least, schema["maximum"].as_i64())
}

/// Bounds in words.
fn told(least: Option<i64>, most: Option<i64>) -> String {
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
