//! Leaves of the layers: what a file, variables and flags set, each with the place that it comes from, and the faults
//! of a configuration.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// A value somebody set.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    /// The possible values; the first that fits the key is taken.
    pub(super) candidates: Vec<Value>,
    pub(super) source: ProblemSource,
}

impl Leaf {
    pub(super) fn key(&self) -> String {
        self.path.join(".")
    }
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum ProblemSource {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// The variable's name.
        name: String,
    },
    /// A flag on the command line.
    Flag {
        /// The flag as it was typed.
        name: String,
    },
}

impl fmt::Display for ProblemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "${name}"),
            Self::Flag { name } => f.write_str(name),
        }
    }
}

/// A problem of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The origin of the value.
    pub source: ProblemSource,
    /// The key, joined by dots; empty for a file as a whole.
    pub key: String,
    /// The reason why it is refused.
    pub reason: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.source, self.reason),
            key => write!(f, "{}: {key}: {}", self.source, self.reason),
        }
    }
}

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration is refused:{}", lines(.0))]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

fn lines(problems: &[ConfigProblem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

/// All leaves of a file below the tables that `known` has.
pub(super) fn of_file(path: &Path, text: &str, known: &Value) -> (Vec<Leaf>, Vec<ConfigProblem>) {
    let at = |offset: usize| ProblemSource::File {
        path: path.to_owned(),
        line: text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1,
    };
    // Recovering, so that every syntax error is reported in one run.
    let (table, errors) = DeTable::parse_recoverable(text);
    let problems = errors
        .into_iter()
        .map(|error| ConfigProblem {
            source: at(error.span().map_or(0, |span| span.start)),
            key: String::new(),
            reason: error.message().to_owned(),
        })
        .collect::<Vec<_>>();
    let mut leaves = Vec::new();
    if problems.is_empty() {
        walk(table.get_ref(), known, &mut Vec::new(), &at, &mut leaves);
    }
    (leaves, problems)
}

fn walk(
    table: &DeTable<'_>,
    known: &Value,
    path: &mut Vec<String>,
    at: &dyn Fn(usize) -> ProblemSource,
    leaves: &mut Vec<Leaf>,
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let below = known.get(key.get_ref().as_ref());
        match (value.get_ref(), below) {
            (DeValue::Table(inner), Some(below @ Value::Object(keys))) if !keys.is_empty() => {
                walk(inner, below, path, at, leaves);
            }
            (value, _) => leaves.push(Leaf {
                path: path.clone(),
                candidates: vec![json(value)],
                source: at(key.span().start),
            }),
        }
        path.pop();
    }
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(&number.as_str().replace('_', ""), number.radix())
                .map_or_else(|_| Value::from(number.as_str()), Value::from)
        }
        DeValue::Float(number) => {
            number.as_str().replace('_', "").parse::<f64>().map_or(Value::Null, Value::from)
        }
        DeValue::Boolean(truth) => Value::from(*truth),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref())))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// Variables with a meaning of their own; see [`super::DaemonFolders`] and [`super::load`].
const RESERVED: [&str; 2] = ["HIVEKEEP_HOME", "HIVEKEEP_CONFIG"];

/// Leaves of `HIVEKEEP_SECTION__KEY` variables.
pub(super) fn of_env(env: &[(String, String)]) -> Vec<Leaf> {
    env.iter()
        .filter(|(name, _)| name.starts_with("HIVEKEEP_") && !RESERVED.contains(&name.as_str()))
        .map(|(name, text)| Leaf {
            path: name["HIVEKEEP_".len()..].to_lowercase().split("__").map(str::to_owned).collect(),
            candidates: readings(text),
            source: ProblemSource::Env { name: name.clone() },
        })
        .collect()
}

/// Leaves of `section.key=value` flags.
pub(super) fn of_flags(flags: &[(String, String)]) -> (Vec<Leaf>, Vec<ConfigProblem>) {
    let (mut leaves, mut problems) = (Vec::new(), Vec::new());
    for (name, text) in flags {
        let source = ProblemSource::Flag { name: name.clone() };
        match text.split_once('=') {
            Some((key, value)) => leaves.push(Leaf {
                path: key.trim().split('.').map(str::to_owned).collect(),
                candidates: readings(value),
                source,
            }),
            None => problems.push(ConfigProblem {
                source,
                key: text.clone(),
                reason: "expected SECTION.KEY=VALUE".to_owned(),
            }),
        }
    }
    (leaves, problems)
}

/// Possible readings of a text: the text itself, or the JSON it spells. The key's type decides.
fn readings(text: &str) -> Vec<Value> {
    let spelled = serde_json::from_str::<Value>(text).ok();
    std::iter::once(Value::from(text)).chain(spelled).collect()
}
