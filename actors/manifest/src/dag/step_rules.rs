//! Rules of a step that its schema cannot say: its notation, what it runs, and what its action excludes.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{
    DagType,
    action::{self, ActionNames, not_here},
    form::check_form,
    graph::{StepOrder, placed_body},
    output::{
        DagOutput, DagStream, check_declared, check_names, check_stream_outputs, check_values,
    },
    rules,
    step::{
        ContainerStartup, DagContainer, DagForeach, DagItems, DagParallel, DagRun, DagRunLine,
        DagStep,
    },
};
use crate::{
    common::check_regex,
    problems::{ManifestPath, ProblemList},
};

/// Keys of the old notation, with what stands for them today.
const OLD_KEYS: [(&str, &str); 14] = [
    ("command", "`run`"),
    ("script", "`run`"),
    ("shell", "`with.shell`"),
    ("shell_args", "`with.shell_args`"),
    ("shell_packages", "`with.shell_packages`"),
    ("exec", "`action: exec`"),
    ("type", "`action`"),
    ("config", "`with`"),
    ("call", "`action: dag.run` with `with.dag`"),
    ("params", "`with.params`"),
    ("llm", "`action: chat.completion` with its keys in `with`"),
    ("messages", "`with.messages`"),
    ("value", "`with.value`"),
    ("routes", "`with.routes`"),
];

/// Keys that a step with `human.task` cannot have, beside the old ones.
const NOT_OF_PEOPLE: &str = "run container worker_selector retry_policy repeat_policy timeout_sec \
    signal_on_stop foreach parallel approval stdout stderr log_output output output_schema outputs \
    mail_on_error tools";

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepPlace {
    /// In the list of steps.
    List,
    /// In the body of a `foreach`.
    Body,
    /// In `handler_on`.
    Handler,
}

/// Checks what a step of today's notation has.
pub(super) fn check(
    step: &DagStep,
    place: StepPlace,
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let selectors = [
        ("run", step.run.is_some()),
        ("action", step.action.is_some()),
        ("foreach", step.foreach.is_some()),
    ];
    let mut given = selectors.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
    if let Some(selector) = given.next() {
        check_old_keys(selector, at, problems);
        if step.worker_selector.as_ref().is_some_and(|it| it != "local") {
            problems.add_key(&at.join("worker_selector"), not_here("worker_selector"));
        }
        if step.inputs.is_some() {
            problems.add_key(&at.join("inputs"), not_here("inputs"));
        }
        for other in given {
            problems.add_key(&at.join(other), format!("excludes `{selector}`: keep one of them"));
        }
        let calls = step.action.as_ref().is_some_and(|it| it == "dag.run" || it == "dag.enqueue");
        if step.parallel.is_some() && !calls {
            problems.add_key(&at.join("parallel"), "needs `action: dag.run` or `dag.enqueue`");
        }
    }
    if let Some(run) = &step.run {
        check_run(run, at, problems);
        action::check_with(action::RUN, step.settings.as_ref(), at, problems);
    }
    if let Some(name) = &step.action {
        check_action(name, step, place, names, at, problems);
    }
    if let Some(parallel) = &step.parallel {
        check_parallel(parallel, &at.join("parallel"), problems);
    }
    check_outputs(step, at, problems);
}

/// Reports keys of the old notation beside one of today's.
pub(super) fn check_old_keys(today: &str, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let keys = problems.keys_at(at);
    for (old, instead) in OLD_KEYS.into_iter().filter(|(old, _)| keys.contains(old)) {
        let message = format!(
            "is a key of the old notation beside `{today}` of today's: {instead} stands for it"
        );
        problems.add_key(&at.join(old), message);
    }
}

fn check_run(run: &DagRun, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let DagRun::Lines(lines) = run {
        let wide = |line: &DagRunLine| matches!(line, DagRunLine::Pair(pair) if pair.len() != 1);
        for (index, _) in lines.iter().enumerate().filter(|(_, line)| wide(line)) {
            problems.add(&at.join("run").join(index), "expected a text: put the line in quotes");
        }
        let written = run.lines();
        if written.is_empty() {
            problems.add(&at.join("run"), "needs a line that is not blank");
        }
        if written.iter().any(|line| line.trim_end().contains('\n')) {
            problems
                .add(&at.join("run"), "a line of a list is one line: write `run: |` for a script");
        }
    }
}

fn check_action(
    name: &str,
    step: &DagStep,
    place: StepPlace,
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    action::check_name(name, names, &at.join("action"), problems);
    action::check_with(name, step.settings.as_ref(), at, problems);
    if name != "human.task" {
        return;
    }
    match place {
        StepPlace::List => {}
        StepPlace::Body => problems.add(&at.join("action"), "`foreach` has no `human.task`"),
        StepPlace::Handler => problems.add(&at.join("action"), "a handler has no `human.task`"),
    }
    if step.id.is_none() {
        problems.add(at, "a step with `human.task` needs an explicit `id`");
    }
    let keys = problems.keys_at(at);
    for key in NOT_OF_PEOPLE.split_whitespace().filter(|key| keys.contains(key)) {
        problems.add_key(&at.join(key), format!("a step with `human.task` has no `{key}`"));
    }
    if let Some(form) = step.settings.as_ref().and_then(|with| with.get("form")) {
        check_form(form, &at.join("with").join("form"), problems);
    }
}

fn check_parallel(parallel: &DagParallel, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let (items, at) = match parallel {
        DagParallel::Variable(_) => return,
        DagParallel::Items(items) => (items, at.clone()),
        DagParallel::Bounded(bounded) => match &bounded.items {
            DagItems::Text(_) => return,
            DagItems::List(items) => (items, at.join("items")),
        },
    };
    let is_nested = |value: &Value| value.is_object() || value.is_array() || value.is_null();
    for (index, item) in items.iter().enumerate() {
        let fits = match item {
            Value::Object(fields) => !fields.values().any(is_nested),
            item => !is_nested(item),
        };
        if !fits {
            let message = "an item of `parallel` is a text, a number, or a mapping of those";
            problems.add(&at.join(index), message);
        }
    }
}

fn check_outputs(step: &DagStep, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(DagOutput::Values(values)) = &step.output {
        check_values(values, &at.join("output"), problems);
    }
    for (key, stream) in [("stdout", &step.stdout), ("stderr", &step.stderr)] {
        let Some(DagStream::Detail(detail)) = stream else { continue };
        let at = at.join(key);
        match &detail.outputs {
            Some(_) if key == "stderr" => {
                problems.add_key(&at.join("outputs"), "belongs to `stdout`");
            }
            Some(outputs) => check_stream_outputs(outputs, &at.join("outputs"), problems),
            None if detail.artifact.is_none() => problems.add(&at, "needs `artifact` or `outputs`"),
            None => {}
        }
    }
    let Some(outputs) = &step.outputs else { return };
    check_declared(outputs, &at.join("outputs"), problems);
    if step.id.is_none() {
        problems.add_key(&at.join("outputs"), "needs an `id`: references name the step by it");
    }
}

/// Checks the body of a `foreach`. `outer` are names and ids of the steps around it.
pub(super) fn check_foreach(
    foreach: &DagForeach,
    outer: &[&HashSet<&str>],
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if let Some(name) = foreach.item_name.as_deref().filter(|name| ["index", "key"].contains(name))
    {
        let message = format!("`{name}` is reserved: references use it for something else");
        problems.add(&at.join("as"), message);
    }
    let collect = foreach.collect.as_ref().map(BTreeMap::keys).into_iter().flatten();
    check_names(collect, &at.join("collect"), problems);
    let body = placed_body(&foreach.steps, &at.join("steps"));
    rules::check_list(&body, outer, StepPlace::Body, names, problems);
    StepOrder::of(DagType::Graph, &body, problems);
}

pub(super) fn check_container(
    container: &DagContainer,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let DagContainer::Spec(spec) = container else { return };
    rules::check_env(spec.env.as_ref(), &at.join("env"), problems);
    if spec.image.is_some() == spec.exec.is_some() {
        problems.add(at, "needs exactly one of `image` and `exec`");
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let parts: Vec<_> = volume.split(':').collect();
        let mode = matches!(parts[..], [_, _] | [_, _, "ro" | "rw"]);
        if !mode || parts.iter().any(|part| part.is_empty()) {
            let message = "is not `HOST:CONTAINER` with `:ro` or `:rw` behind, if at all";
            problems.add(&at.join("volumes").join(index), message);
        }
    }
    if let Some(pattern) = &spec.log_pattern {
        check_regex(pattern, &at.join("log_pattern"), problems);
    }
    if spec.startup == Some(ContainerStartup::Command) && spec.command.is_none() {
        problems.add(&at.join("startup"), "the key `command` is missing");
    }
}
