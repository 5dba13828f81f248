//! Children of a step: the DAGs that it runs, or the items that its body is done for, and what it makes of their ends.

use std::collections::{BTreeMap, HashSet};

use hivekeep_kernel::{RunId, ToolError};
use hivekeep_manifest::dag::{DagForeach, DagItems, DagParallel, reference::references};
use hivekeep_plan::{
    progress::{ChildPhase, NodeKey},
    resolve::{GivenParams, ItemScope, TextField, resolve_value, value_text},
};
use serde_json::{Map, Value, json};

use super::{
    RunFold,
    failure::failed,
    records::{NodeLeft, RunChild},
    scope::{RunScopes, too_long},
    state::RunWork,
};

/// Most children of a step.
const MAX_CHILDREN: usize = 1_000;
/// Characters between the words of a text that is a list.
const BETWEEN: [char; 6] = ['\n', '\r', ',', ';', '|', '\t'];
/// Name of an item where a loop names none.
pub(super) const ITEM: &str = "item";

/// Children of `dag.run` or, with `enqueues`, of `dag.enqueue`: one, or one for each item of `parallel`, those with the
/// same parameters once.
///
/// # Errors
/// `step_failed` for items that are none.
pub(super) fn called(
    state: &RunFold,
    work: &RunWork,
    scopes: &RunScopes,
    with: &Map<String, Value>,
    (parallel, enqueues): (Option<&DagParallel>, bool),
) -> Result<Vec<RunChild>, ToolError> {
    let items = match parallel {
        None => vec![None],
        Some(parallel) => parallel_items(work, scopes, parallel)?.into_iter().map(Some).collect(),
    };
    let mut children: Vec<RunChild> = Vec::new();
    let mut seen = HashSet::new();
    for item in items {
        let mut scopes = scopes.clone();
        scopes.items.extend(item.clone().map(ItemScope::Parallel));
        let name = with.get("dag").and_then(Value::as_str).unwrap_or_default();
        let name = scopes.resolve(work, name, TextField::SubDag)?;
        let Some(dag) = state.begun.documents.get(&name) else {
            return Err(failed(format!(
                "there is no DAG `{name:.80}`: no further document of its file, and no file that was there when it began"
            )));
        };
        let queue = match with.get("queue").and_then(Value::as_str) {
            _ if !enqueues => None,
            Some(queue) => Some(scopes.resolve(work, queue, TextField::StepText)?),
            None => Some(dag.queue.clone().unwrap_or_else(|| name.clone())),
        };
        let given = match (with.get("params"), item) {
            (None, item) => item.unwrap_or(Value::Null),
            (Some(Value::String(text)), _) => {
                let given = GivenParams::from_step(text, &scopes.texts(work));
                given_json(given.map_err(|_| too_long("with.params"))?)
            }
            (Some(params), _) => resolve_value(params, TextField::SubDag, &scopes.texts(work))
                .map_err(|_| too_long("with.params"))?,
        };
        if seen.insert((name.clone(), given.to_string())) {
            children.push(RunChild {
                id: RunId::new(),
                dag: Some(name),
                given,
                key: None,
                attempt: None,
                queue,
            });
        }
    }
    Ok(children)
}

fn given_json(given: GivenParams) -> Value {
    let named = (!given.named.is_empty()).then_some(Value::Object(given.named));
    Value::Array(given.positional.into_iter().chain(named).collect())
}

fn parallel_items(
    work: &RunWork,
    scopes: &RunScopes,
    parallel: &DagParallel,
) -> Result<Vec<Value>, ToolError> {
    let text = |text: &str| scopes.resolve(work, text, TextField::StepText);
    let items = match parallel {
        DagParallel::Variable(source) => listed(&text(source)?),
        DagParallel::Bounded(bounded) => match &bounded.items {
            DagItems::Text(source) => listed(&text(source)?),
            DagItems::List(items) => resolved(work, scopes, items)?,
        },
        DagParallel::Items(items) => resolved(work, scopes, items)?,
    };
    match items.len() {
        0 => Err(failed("`parallel` has no items".to_owned())),
        count if count > MAX_CHILDREN => {
            Err(failed(format!("{count} items; {MAX_CHILDREN} are allowed")))
        }
        _ => Ok(items),
    }
}

fn resolved(work: &RunWork, scopes: &RunScopes, items: &[Value]) -> Result<Vec<Value>, ToolError> {
    let texts = scopes.texts(work);
    let item = |item| resolve_value(item, TextField::StepText, &texts);
    items.iter().map(item).collect::<Result<_, _>>().map_err(|_| too_long("items"))
}

/// Items of a text: those of a JSON list, a JSON object, or words.
fn listed(text: &str) -> Vec<Value> {
    match serde_json::from_str(text.trim()) {
        Ok(Value::Array(items)) => return items,
        Ok(object @ Value::Object(_)) => return vec![object],
        _ => {}
    }
    let (mut items, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if !quoted && (BETWEEN.contains(&c) || c.is_whitespace()) => {
                items.push(std::mem::take(&mut word));
            }
            c => word.push(c),
        }
    }
    items.push(word);
    items.into_iter().filter(|word| !word.is_empty()).map(Value::String).collect()
}

/// Children of `foreach`, one for each item.
///
/// # Errors
/// `step_failed` for items that are no list, and for keys that are blank or there twice.
pub(super) fn looped(
    work: &RunWork,
    scopes: &RunScopes,
    foreach: &DagForeach,
) -> Result<Vec<RunChild>, ToolError> {
    let items = match &foreach.items {
        DagItems::List(items) => resolved(work, scopes, items)?,
        DagItems::Text(text) => {
            let text = scopes.resolve(work, text, TextField::StepText)?;
            match serde_json::from_str(text.trim()) {
                Ok(Value::Array(items)) => items,
                _ => return Err(failed("`foreach.items` does not become a JSON list".to_owned())),
            }
        }
    };
    if items.len() > MAX_CHILDREN {
        return Err(failed(format!("{} items; {MAX_CHILDREN} are allowed", items.len())));
    }
    let (mut children, mut keys) = (Vec::with_capacity(items.len()), HashSet::new());
    for (index, item) in items.into_iter().enumerate() {
        let key = match &foreach.key {
            None => index.to_string(),
            Some(text) => {
                let mut scopes = scopes.clone();
                scopes.items.push(item_scope(foreach, index, None, &item));
                scopes.resolve(work, text, TextField::StepText)?
            }
        };
        if key.trim().is_empty() || !keys.insert(key.clone()) {
            return Err(failed(format!("the key `{key:.80}` of an item is blank, or there twice")));
        }
        let (id, key) = (RunId::new(), Some(key));
        children.push(RunChild { id, dag: None, given: item, key, attempt: None, queue: None });
    }
    Ok(children)
}

/// Item as the texts of a loop's body name it.
pub(super) fn item_scope(
    foreach: &DagForeach,
    index: usize,
    key: Option<String>,
    item: &Value,
) -> ItemScope {
    let name = foreach.item_name.clone().unwrap_or_else(|| ITEM.to_owned());
    ItemScope::Foreach { name, index, key, value: item.clone() }
}

/// Result of a step of its children's ends: whether all succeeded, and its value.
pub(super) fn collected(
    state: &RunFold,
    key: NodeKey,
    children: &[RunChild],
    phases: &[ChildPhase],
    is_single: bool,
) -> (bool, Value) {
    let succeeded = |at: usize| phases.get(at) == Some(&ChildPhase::Succeeded);
    let count = (0..children.len()).filter(|at| succeeded(*at)).count();
    let (mut rows, mut outputs) = (Vec::new(), Vec::new());
    let enqueued = children.iter().all(|child| child.queue.is_some());
    for (at, child) in (0u32..).zip(children) {
        let left = state.results.get(&(key.node, at)).cloned().unwrap_or_default();
        let (well, values) = (succeeded(at as usize), outputs_of(&left));
        let status = match well {
            true if enqueued => "queued",
            true => "succeeded",
            false => "failed",
        };
        let mut row = match &child.key {
            Some(name) => json!({ "index": at, "key": name, "status": status }),
            None => {
                json!({ "name": child.dag, "dagRunId": child.id, "params": child.given, "status": status })
            }
        };
        match (&left.error, well) {
            (Some(error), _) => row["error"] = json!(error.message),
            (None, true) if enqueued => row["queue"] = json!(child.queue),
            (None, true) => row["outputs"] = values.clone(),
            _ => {}
        }
        rows.push(row);
        outputs.extend(well.then_some(values));
    }
    let all = count == children.len();
    if is_single && children.len() == 1 {
        return (all, rows.remove(0));
    }
    if enqueued && !children.is_empty() {
        let summary = json!({ "total": children.len(), "queued": count });
        return (all, json!({ "summary": summary, "runs": rows }));
    }
    let list = if children.iter().all(|child| child.key.is_some()) { "items" } else { "results" };
    let summary =
        json!({ "total": children.len(), "succeeded": count, "failed": children.len() - count });
    (all, json!({ "summary": summary, list: rows, "outputs": outputs }))
}

fn outputs_of(left: &NodeLeft) -> Value {
    left.published.clone().unwrap_or_else(|| json!({}))
}

/// Outputs of a run that is over: what its steps publish, and what the body of a loop collects.
///
/// # Errors
/// `step_failed` for a text whose references have no values.
pub(crate) fn run_outputs(state: &RunFold, work: &RunWork) -> Result<Value, ToolError> {
    let mut outputs = Map::new();
    for left in state.left.values() {
        if let Some(Value::Object(published)) = &left.published {
            outputs.extend(published.clone());
        }
    }
    let collect: BTreeMap<_, _> =
        state.begun.body.iter().flat_map(|body| body.collect.clone()).collect();
    let scopes = RunScopes::of_end(state, work);
    for (name, text) in collect {
        for reference in references(&text).filter(|reference| !reference.is_escaped) {
            let named = text.get(reference.range.clone()).unwrap_or_default();
            if scopes.resolve(work, named, TextField::StepText)? == named {
                return Err(failed(format!("`collect.{name}`: `{named:.80}` has no value")));
            }
        }
        let value = scopes.resolve(work, &text, TextField::StepText)?;
        outputs.insert(name, Value::String(value));
    }
    Ok(Value::Object(outputs))
}

/// Text of an output that becomes a variable.
pub(super) fn variable(value: &Value) -> String {
    value_text(value).into_owned()
}
