//! Putting the layers together.

use std::{cell::LazyCell, path::PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::{
    Config, ConfigProblem, ConfigProblems, DaemonFolders, ProblemSource, daemon,
    leaves::{self, Leaf},
    renamed,
};

/// Sources of the configuration. A value, so that tests bring their own.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    /// Path of `--config`, in place of `HIVEKEEP_CONFIG` and of the searched places.
    pub file: Option<PathBuf>,
    /// Flags as `(flag, SECTION.KEY=VALUE)`.
    pub flags: Vec<(String, String)>,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// The effective user is root.
    pub root: bool,
    /// The effective user's id.
    pub uid: u32,
}

impl ConfigSources {
    /// From this process.
    pub fn from_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let env = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        let uid = rustix::process::geteuid();
        Self { file, flags, env, root: uid.is_root(), uid: uid.as_raw() }
    }

    pub(super) fn var(&self, name: &str) -> Option<&str> {
        let found = self.env.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// A key of the effective configuration, with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigEntry {
    /// Section and key, joined by dots.
    pub key: String,
    /// The value in force.
    pub value: Value,
    /// The layer that set the value.
    pub source: ProblemSource,
}

/// A configuration that holds.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The folders of the daemon.
    pub folders: DaemonFolders,
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    /// Every key with its source, in the order of the shipped file.
    pub entries: Vec<ConfigEntry>,
    /// Keys that were set by a name that goes.
    pub renamed: Vec<ConfigProblem>,
}

/// Reads all layers.
///
/// # Errors
/// Everything that is wrong in any layer.
pub fn load(given: &ConfigSources) -> Result<LoadedConfig, ConfigProblems> {
    let known = serde_json::to_value(Config::default()).expect("options are plain data");
    let mut problems = Vec::new();
    let file = daemon::config_file(given);
    let mut layers = Vec::new();
    if let Some(path) = &file {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let (found, wrong) =
                    leaves::of_file(path, &text, &renamed::with_old_sections(&known));
                layers.push(found);
                problems.extend(wrong);
            }
            Err(error) => problems.push(ConfigProblem {
                source: ProblemSource::File { path: path.clone(), line: 1 },
                key: String::new(),
                reason: format!("cannot be read: {error}"),
            }),
        }
    }
    layers.push(leaves::of_env(&given.env));
    let (flags, wrong) = leaves::of_flags(&given.flags);
    layers.push(flags);
    problems.extend(wrong);
    let (leaves, old_names): (Vec<_>, Vec<_>) = layers.into_iter().map(renamed::read).unzip();

    let schema = LazyCell::new(super::schema);
    let mut tree = known.clone();
    let mut sources: Vec<(String, ProblemSource)> = Vec::new();
    for leaf in leaves.into_iter().flatten() {
        let judged =
            judge(&leaf, &known).and_then(|value| match out_of_bounds(&schema, &leaf, &value) {
                Some(reason) => Err(reason),
                None => Ok(value),
            });
        match judged {
            Ok(value) => {
                *place(&mut tree, &leaf.path).expect("it was judged known") = value;
                sources.push((leaf.key(), leaf.source));
            }
            Err(reason) => {
                problems.push(ConfigProblem { key: leaf.key(), source: leaf.source, reason })
            }
        }
    }
    let source_of = |key: &str| {
        let last = sources.iter().rev().find(|(set, _)| set == key);
        last.map_or(ProblemSource::Default, |(_, source)| source.clone())
    };
    let config: Config = serde_json::from_value(tree).expect("every leaf was judged");
    problems.extend(config.check().into_iter().map(|(key, reason)| ConfigProblem {
        source: source_of(&key),
        key,
        reason,
    }));
    let folders = DaemonFolders::of(&config, given);
    problems.extend(folders.check().map(|(key, reason)| ConfigProblem {
        source: source_of(key),
        key: key.to_owned(),
        reason,
    }));
    if !problems.is_empty() {
        return Err(ConfigProblems(problems));
    }
    // The serialised values, and not the written ones: a secret's type redacts it.
    let shown = serde_json::to_value(&config).expect("options are plain data");
    let mut entries = Vec::new();
    list(&shown, &mut String::new(), &mut |key, value| {
        entries.push(ConfigEntry {
            key: key.to_owned(),
            value: value.clone(),
            source: source_of(key),
        });
    });
    let renamed = old_names.into_iter().flatten().collect();
    Ok(LoadedConfig { config, folders, file, entries, renamed })
}

/// The value a leaf means, or why it is refused. A leaf is tried alone over the
/// defaults, so that each gets its own verdict.
fn judge(leaf: &Leaf, known: &Value) -> Result<Value, String> {
    let mut alone = known.clone();
    match place(&mut alone, &leaf.path) {
        None => return Err("there is no such key".to_owned()),
        Some(Value::Object(keys)) if !keys.is_empty() => {
            return Err("this is a section, not a key".to_owned());
        }
        Some(_) => {}
    }
    let mut why = String::new();
    for value in &leaf.candidates {
        *place(&mut alone, &leaf.path).expect("it was just found") = value.clone();
        match serde_json::from_value::<Config>(alone.clone()) {
            Ok(_) => return Ok(value.clone()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Why a number is not within the bounds that its key declares.
fn out_of_bounds(
    schema: &LazyCell<Value, impl FnOnce() -> Value>,
    leaf: &Leaf,
    value: &Value,
) -> Option<String> {
    // A number of more than 63 bits is beyond each bound.
    let number = value.as_i64().or_else(|| value.is_u64().then_some(i64::MAX))?;
    let key = leaf.path.iter().fold(&**schema, |at, key| &at["properties"][key]);
    let (least, most) = super::bounds(key);
    let outside =
        least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most);
    outside.then(|| format!("must be {}", super::told(least, most)))
}

fn place<'v>(tree: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(tree, |at, key| at.as_object_mut()?.get_mut(key))
}

/// Visits every leaf of a tree of sections.
fn list(tree: &Value, key: &mut String, visit: &mut dyn FnMut(&str, &Value)) {
    match tree {
        Value::Object(keys) if !keys.is_empty() => {
            for (name, below) in keys {
                let length = key.len();
                if length > 0 {
                    key.push('.');
                }
                key.push_str(name);
                list(below, key, visit);
                key.truncate(length);
            }
        }
        value => visit(key, value),
    }
}

impl Config {
    /// Settings that cannot work although each value has the right type.
    fn check(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        let mut add = |section: &str, found: Vec<(&'static str, String)>| {
            wrong.extend(found.into_iter().map(|(key, why)| (format!("{section}.{key}"), why)));
        };
        add("daemon", self.daemon.check());
        add("audit", self.audit.problems());
        let http = self.http.check().into_iter();
        wrong.extend(http.map(|(key, reason)| (format!("http.{key}"), reason)));
        if let Err(error) = self.store.check() {
            wrong.push(("store".to_owned(), error.to_string()));
        }
        let registry = self.registry.problems().into_iter();
        wrong.extend(registry.map(|(key, reason)| (format!("registry.{key}"), reason)));
        let policy = self.policy.problems().into_iter();
        wrong.extend(policy.map(|(key, reason)| (format!("policy.{key}"), reason)));
        wrong.extend(self.problems_of_families());
        wrong
    }
}
