//! Two runs side by side: what differs between them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::types::{DagDifference, DagRunShown, DagRunsCompared};

/// Characters of a value.
const CHARS: usize = 500;

/// Step of a fact, none for what is of the whole run, and its field.
type FactKey<'r> = (Option<&'r str>, String);

/// Differences between two runs that are shown whole, as many as are asked for. Times and durations always differ, and
/// are none.
pub(super) fn compare(
    ours: &DagRunShown,
    theirs: DagRunShown,
    (offset, limit): (usize, usize),
) -> DagRunsCompared {
    let (own, other) = (facts(ours), facts(&theirs));
    let (by_own, by_other) = (by_key(&own), by_key(&other));
    let value = |of: &BTreeMap<_, &Value>, key| of.get(key).copied().cloned().unwrap_or_default();
    let added = other.iter().map(|(key, _)| key).filter(|key| !by_own.contains_key(key));
    let keys = own.iter().map(|(key, _)| key).chain(added);
    let differs = keys.filter_map(|key| {
        let (value, other) = (value(&by_own, key), value(&by_other, key));
        let (step, field) = (key.0.map(str::to_owned), key.1.clone());
        let [value, other] = (value != other).then_some([value, other])?.map(short);
        Some(DagDifference { step, field, value, other })
    });
    let differences: Vec<_> = differs.collect();
    DagRunsCompared {
        total: differences.len(),
        differences: differences.into_iter().skip(offset).take(limit).collect(),
        with: theirs.row,
    }
}

fn by_key<'f>(facts: &'f [(FactKey<'f>, Value)]) -> BTreeMap<&'f FactKey<'f>, &'f Value> {
    facts.iter().map(|(key, value)| (key, value)).collect()
}

/// Facts that a run is compared by, in the order in which they are told.
fn facts(run: &DagRunShown) -> Vec<(FactKey<'_>, Value)> {
    let named = |step, of: &'static str, values: &Map<String, Value>| {
        let fact =
            |(name, value): (&String, &Value)| ((step, format!("{of}.{name}")), value.clone());
        values.iter().map(fact).collect::<Vec<_>>()
    };
    let mut all = vec![((None, "name".to_owned()), json!(run.row.name))];
    all.extend(named(None, "params", &run.params));
    all.push(((None, "status".to_owned()), json!(run.row.status)));
    all.push(((None, "error".to_owned()), json!(run.error)));
    for step in &run.steps {
        let of = Some(step.name.as_str());
        let fields = [
            ("status", json!(step.status)),
            ("tries", json!(step.tries)),
            ("exit_code", json!(step.exit_code)),
            ("error", json!(step.error)),
        ];
        all.extend(fields.map(|(field, value)| ((of, field.to_owned()), value)));
        all.extend(named(of, "outputs", &step.outputs));
    }
    if let Some(outputs) = run.outputs.as_ref().and_then(Value::as_object) {
        all.extend(named(None, "outputs", outputs));
    }
    all
}

/// A value, or the beginning of its text where that is long.
fn short(value: Value) -> Value {
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => value,
    }
}
