//! The layer of a TOML file: its leaves, each with its line.

use std::path::Path;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{ConfigProblem, ProblemSource, layers::Leaf};

/// All leaves of a file below the tables that `known` has.
pub(super) fn leaves(path: &Path, text: &str, known: &Value) -> (Vec<Leaf>, Vec<ConfigProblem>) {
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
