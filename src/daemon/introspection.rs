//! The daemon's knowledge of itself, for the families.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use hivekeep_config::{LoadedConfig, ProblemSource};
use hivekeep_kernel::lock;
use hivekeep_registry::Catalogue;
use hivekeep_runtime::{
    Finding,
    introspection::{ConfigValue, Introspection, ToolSchemas},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::check;

/// How long an answer of the host's check is given again: it starts programs.
const FRESH: Duration = Duration::from_secs(30);

type Check = Shared<BoxFuture<'static, Arc<Vec<Finding>>>>;

/// Self-knowledge of a daemon.
pub(super) struct SelfKnowledge {
    loaded: Arc<LoadedConfig>,
    since: Instant,
    tools: Vec<ToolSchemas>,
    config_schema: Value,
    config: Value,
    config_set: Vec<ConfigValue>,
    /// The last check with the time of its beginning. All who ask meanwhile wait for the same.
    check: Mutex<Option<(Instant, Check)>>,
}

impl SelfKnowledge {
    pub(super) fn new(loaded: LoadedConfig, catalogue: &Catalogue) -> Self {
        let tool = |entry: &Arc<hivekeep_registry::ToolEntry>| ToolSchemas {
            name: entry.name(),
            family: entry.spec.family,
            input: entry.input_schema.clone(),
            output: entry.output_schema.clone().unwrap_or_default(),
        };
        let set = loaded.entries.iter().filter(|entry| entry.source != ProblemSource::Default);
        let set = set.map(|entry| ConfigValue {
            key: entry.key.clone(),
            value: entry.value.clone(),
            source: entry.source.to_string(),
        });
        Self {
            since: Instant::now(),
            tools: catalogue.entries().map(tool).collect(),
            config_schema: hivekeep_config::schema(),
            config: serde_json::to_value(&loaded.config).expect("options are plain data"),
            config_set: set.collect(),
            loaded: Arc::new(loaded),
            check: Mutex::default(),
        }
    }

    fn check(&self) -> Check {
        let mut check = lock(&self.check);
        if let Some((_, recent)) = check.as_ref().filter(|(begun, _)| begun.elapsed() < FRESH) {
            return recent.clone();
        }
        let loaded = self.loaded.clone();
        let work = tokio::task::spawn_blocking(move || {
            let mut found = check::of_daemon(&loaded);
            found.extend(check::of_families(&loaded));
            found
        });
        let found = work.map(|found| {
            let failed = |error| {
                Finding::bad("check", format!("it failed: {error}"), "look at `hivekeep logs`")
            };
            Arc::new(found.unwrap_or_else(|error| vec![failed(error)]))
        });
        let begun = found.boxed().shared();
        *check = Some((Instant::now(), begun.clone()));
        begun
    }
}

#[async_trait]
impl Introspection for SelfKnowledge {
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn uptime(&self) -> Duration {
        self.since.elapsed()
    }

    fn tools(&self) -> &[ToolSchemas] {
        &self.tools
    }

    fn config_schema(&self) -> &Value {
        &self.config_schema
    }

    fn config(&self) -> &Value {
        &self.config
    }

    fn config_set(&self) -> &[ConfigValue] {
        &self.config_set
    }

    fn config_file(&self) -> Option<String> {
        self.loaded.file.as_ref().map(|file| file.display().to_string())
    }

    async fn findings(&self) -> Vec<Finding> {
        self.check().await.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_introspection::keys_at;

    use super::*;

    /// Paths of the keys below a path, as far as `depth`.
    fn paths(schema: &Value, path: &str, depth: usize, found: &mut Vec<String>) {
        for key in keys_at(schema, path).unwrap_or_else(|error| panic!("{path}: {error}")) {
            let below = if path.is_empty() { key } else { format!("{path}.{key}") };
            if depth > 0 {
                paths(schema, &below, depth - 1, found);
            }
            found.push(below);
        }
    }

    /// Names of the keys anywhere in a schema that are used by its root.
    fn names(schema: &Value, root: &Value, seen: &mut Vec<String>, names: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                if let Some(to) = map.get("$ref").and_then(Value::as_str)
                    && !seen.iter().any(|one| one == to)
                {
                    seen.push(to.to_owned());
                    let target = root.pointer(to.trim_start_matches('#')).expect("it is there");
                    self::names(target, root, seen, names);
                }
                for (key, below) in
                    map.iter().filter(|(key, _)| *key != "$defs" && *key != "default")
                {
                    match (key.as_str(), below) {
                        ("properties", Value::Object(properties)) => {
                            names.extend(properties.keys().cloned());
                            let each = properties.values();
                            each.for_each(|one| self::names(one, root, seen, names));
                        }
                        _ => self::names(below, root, seen, names),
                    }
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| self::names(item, root, seen, names));
            }
            _ => {}
        }
    }

    #[test]
    fn every_key_of_every_schema_is_reached_by_a_path() {
        let catalogue = hivekeep_config::families::catalogue();
        let config = hivekeep_config::schema();
        let tools = catalogue.entries().flat_map(|tool| {
            [
                ("input", &tool.input_schema),
                ("output", tool.output_schema.as_ref().expect("an own tool")),
            ]
            .map(|(side, schema)| (format!("{} {side}", tool.name()), schema))
        });
        for (what, schema) in tools.chain([("config".to_owned(), &config)]) {
            let (mut found, mut all) = (Vec::new(), Vec::new());
            paths(schema, "", 4, &mut found);
            names(schema, schema, &mut Vec::new(), &mut all);
            for name in all {
                let reached = |path: &String| path.rsplit('.').next() == Some(name.as_str());
                assert!(found.iter().any(reached), "{what}: no path leads to {name}");
            }
            let mut again = Vec::new();
            paths(schema, "", 4, &mut again);
            assert_eq!(found, again, "{what}: in the same order");
        }
    }
}
