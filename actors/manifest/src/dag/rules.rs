//! Rules of a DAG that its schema cannot say.

use std::collections::{HashMap, HashSet};

use super::{
    DagManifest, check_schedule, commands,
    graph::{PlacedStep, check_order, placed},
    step::{DagHandlers, DagStep, check_container},
    values::{
        ContinueOn, DagBackoff, DagPrecondition, DagPreconditionItem, DagPreconditions, DagScalar,
        Repeat, RepeatPolicy,
    },
};
use crate::{
    common::check_pattern,
    problems::{ManifestPath, ProblemList, at},
};

/// Ids that references use for other things.
const RESERVED_IDS: [&str; 7] = ["env", "params", "args", "stdout", "stderr", "output", "outputs"];

/// Checks a DAG.
pub(crate) fn check(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    check_root(dag, problems);
    let own_types = dag.step_types.iter().flatten().map(|(name, _)| name.as_str());
    let own_types: Vec<_> = own_types.collect();
    let steps = placed(&dag.steps);
    if steps.is_empty() {
        problems.add(&at!["steps"], "a DAG needs a step");
    }
    check_names(&steps, problems);
    for placed in &steps {
        if let Some(step) = placed.step {
            check_step(step, &own_types, &placed.path, problems);
        }
        if problems.is_full() {
            return;
        }
    }
    check_order(dag.dag_type.unwrap_or_default(), &steps, problems);
    check_handlers(dag.handler_on.as_ref(), &own_types, problems);
}

fn check_root(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    if dag.labels.is_some() && dag.tags.is_some() {
        problems.add_key(&at!["tags"], "is the same as `labels`: keep one");
    }
    if dag.hist_retention_days.is_some() && dag.hist_retention_runs.is_some() {
        problems.add_key(&at!["hist_retention_runs"], "excludes `hist_retention_days`: keep one");
    }
    if let Some(times) = &dag.schedule {
        check_schedule(times, &at!["schedule"], problems);
    }
    if let Some(conditions) = &dag.preconditions {
        check_conditions(conditions, &at!["preconditions"], problems);
    }
    if let Some(policy) = &dag.retry_policy {
        check_backoff(policy.backoff, &at!["retry_policy"], problems);
    }
    if let Some(spec) = &dag.container {
        check_container(spec, &at!["container"], problems);
    }
}

fn check_names(steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) {
    let mut names: HashMap<&str, &ManifestPath> = HashMap::new();
    for placed in steps {
        let Some(name) = placed.name else { continue };
        if let Some(first) = names.insert(name, &placed.path) {
            let message =
                format!("the name of {first} is the same: each step needs one of its own");
            problems.add(&placed.path.join("name"), message);
        }
    }
    let mut ids = HashSet::new();
    for placed in steps {
        let Some(id) = placed.id() else { continue };
        let at = placed.path.join("id");
        if RESERVED_IDS.contains(&id) {
            problems.add(&at, format!("`{id}` is reserved: references use it for something else"));
        }
        if !ids.insert(id) {
            problems.add(&at, format!("another step has the id `{id}`"));
        }
        if names.get(id).is_some_and(|named| **named != placed.path) {
            problems.add(&at, format!("another step is named `{id}`"));
        }
    }
}

fn check_step(
    step: &DagStep,
    own_types: &[&str],
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    commands::check(step, own_types, at, problems);
    if let Some(spec) = &step.container {
        check_container(spec, &at.join("container"), problems);
    }
    if let Some(conditions) = &step.preconditions {
        check_conditions(conditions, &at.join("preconditions"), problems);
    }
    if let Some(policy) = &step.retry_policy {
        check_backoff(policy.backoff, &at.join("retry_policy"), problems);
    }
    if let Some(policy) = &step.repeat_policy {
        check_repeat(policy, &at.join("repeat_policy"), problems);
    }
    if let Some(ContinueOn::Detail(detail)) = &step.continue_on {
        let at = at.join("continue_on").join("output");
        detail.output.iter().flat_map(|texts| texts.iter()).for_each(|text| {
            check_pattern(text, &at, problems);
        });
    }
    if step.stdout.is_some() && step.stdout == step.stderr {
        problems.add(&at.join("stderr"), "is the same file as `stdout`");
    }
    for route in step.routes.iter().flatten().map(|(route, _)| route) {
        check_pattern(route, &at.join("routes").join(route), problems);
    }
    let Some(approval) = &step.approval else { return };
    if step.worker_selector.is_some() {
        problems.add_key(&at.join("worker_selector"), "excludes `approval`: keep one of them");
    }
    let asked = approval.input.as_deref().unwrap_or_default();
    for (index, name) in approval.required.iter().flatten().enumerate() {
        if !asked.contains(name) {
            let message = format!("`{name}` is not asked for: add it to `input`");
            problems.add(&at.join("approval").join("required").join(index), message);
        }
    }
}

fn check_conditions(
    conditions: &DagPreconditions,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    match conditions {
        DagPreconditions::Command(_) => {}
        DagPreconditions::One(one) => check_condition(one, at, problems),
        DagPreconditions::More(all) => {
            for (index, item) in all.iter().enumerate() {
                if let DagPreconditionItem::Detail(one) = item {
                    check_condition(one, &at.join(index), problems);
                }
            }
        }
    }
}

fn check_condition(condition: &DagPrecondition, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(DagScalar::Text(text)) = &condition.expected {
        check_pattern(text, &at.join("expected"), problems);
    }
}

fn check_backoff(backoff: Option<DagBackoff>, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(DagBackoff::Factor(factor)) = backoff
        && factor <= 1.0
    {
        problems.add(&at.join("backoff"), "has to be `true` or more than 1");
    }
}

fn check_repeat(policy: &RepeatPolicy, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let by_condition = matches!(policy.repeat, Some(Repeat::By(_)));
    if by_condition && policy.condition.is_none() && policy.exit_code.is_none() {
        problems.add(at, "`while` and `until` need `condition` or `exit_code`");
    }
    if policy.expected.is_some() && policy.condition.is_none() {
        problems.add(&at.join("expected"), "needs `condition`");
    }
    if let Some(DagScalar::Text(text)) = &policy.expected {
        check_pattern(text, &at.join("expected"), problems);
    }
    check_backoff(policy.backoff, at, problems);
}

fn check_handlers(
    handlers: Option<&DagHandlers>,
    own_types: &[&str],
    problems: &mut ProblemList<'_>,
) {
    let Some(handlers) = handlers else { return };
    for (name, handler) in [
        ("init", &handlers.init),
        ("success", &handlers.success),
        ("failure", &handlers.failure),
        ("abort", &handlers.abort),
        ("wait", &handlers.wait),
        ("exit", &handlers.exit),
    ] {
        let Some(step) = handler else { continue };
        let at = at!["handler_on", name];
        check_step(step, own_types, &at, problems);
        for (field, given) in
            [("depends", step.depends.is_some()), ("approval", step.approval.is_some())]
        {
            if given {
                problems.add_key(&at.join(field), format!("a handler has no `{field}`"));
            }
        }
    }
}
