//! Rules of a DAG that its schema cannot say.

use std::collections::{HashMap, HashSet};

use super::{
    DagManifest, DagType,
    action::{self, ActionNames, not_here},
    commands,
    graph::{PlacedStep, StepOrder, check_rewinds, placed, routes},
    has_word,
    params::{check_consts, check_params},
    reference::is_variable,
    root::DagSecret,
    schedule::check_schedule,
    step::{DagHandlers, DagStep, DagSteps},
    step_rules::{self, StepPlace, check_container, check_foreach},
    values::{
        ContinueOn, DagBackoff, DagEnv, DagEnvItem, DagPrecondition, DagPreconditionItem,
        DagPreconditions, DagScalar, Repeat, RepeatPolicy,
    },
};
use crate::{
    agent::check_delivery,
    common::{JsonObject, check_json_schema, check_pattern},
    problems::{ManifestPath, ProblemList, at},
};

/// Ids that references use for other things, however their letters are written.
const RESERVED_IDS: [&str; 7] = ["env", "params", "args", "stdout", "stderr", "output", "outputs"];
/// Name of the step that an agent is.
const AGENT_STEP: &str = "__agent__";
/// Keys of `llm` that are of agents.
const AGENT_MODEL_KEYS: &str = "max_context_tokens observation_max_bytes observation_keep_recent";
/// Keys that `defaults` may have.
const DEFAULT_KEYS: &str = "retry_policy continue_on repeat_policy timeout_sec mail_on_error \
    signal_on_stop env preconditions";
/// Checks a DAG. `tools` are the names of the catalogue, if they are known.
pub(crate) fn check(dag: &DagManifest, tools: Option<&[&str]>, problems: &mut ProblemList<'_>) {
    check_root(dag, problems);
    if dag.is_todays() {
        check_todays(dag, problems);
    }
    let own = dag.actions.iter().flatten().map(|(name, _)| name.as_str());
    let types = dag.step_types.iter().flatten().map(|(name, _)| name.as_str());
    let names = ActionNames::new(own, types, tools);
    let steps = placed(&dag.steps);
    if steps.is_empty() {
        problems.add(&at!["steps"], "a DAG needs a step: the list has to be non-empty");
    }
    check_list(&steps, &[], StepPlace::List, &names, problems);
    if problems.is_full() {
        return;
    }
    let order = StepOrder::of(dag.order(), &steps, problems);
    check_rewinds(&order, &steps, problems);
    check_handlers(dag.handler_on.as_deref(), &names, problems);
}

/// Checks steps of one list. `outer` are names and ids of the steps around it.
pub(super) fn check_list(
    steps: &[PlacedStep<'_>],
    outer: &[&HashSet<&str>],
    place: StepPlace,
    names: &ActionNames<'_>,
    problems: &mut ProblemList<'_>,
) {
    check_names(steps, outer, problems);
    let own = steps.iter().flat_map(|placed| [placed.name, placed.id()]).flatten();
    let own: HashSet<_> = own.collect();
    let around: Vec<_> = outer.iter().copied().chain([&own]).collect();
    for placed in steps {
        if problems.is_full() {
            return;
        }
        let Some(step) = placed.step else { continue };
        check_step(step, place, names, &placed.path, problems);
        for (path, _) in routes(placed) {
            let route = path.0.last().map(String::as_str).unwrap_or_default();
            check_pattern(route, &path, problems);
        }
        if let Some(foreach) = &step.foreach {
            check_foreach(foreach, &around, names, &placed.path.join("foreach"), problems);
        }
    }
}

fn check_root(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    if dag.labels.is_some() && dag.tags.is_some() {
        problems.add_key(&at!["tags"], "is the same as `labels`: keep one");
    }
    if dag.hist_retention_days.is_some() && dag.hist_retention_runs.is_some() {
        problems.add_key(&at!["hist_retention_runs"], "excludes `hist_retention_days`: keep one");
    }
    if let Some(delivery) = &dag.delivery {
        check_delivery(delivery, &at!["delivery", "destinations"], problems);
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
    if let Some(params) = &dag.params {
        check_params(params, &at!["params"], problems);
    }
    check_consts(dag.consts.as_deref().unwrap_or_default(), &at!["consts"], problems);
    check_env(dag.env.as_ref(), &at!["env"], problems);
    check_secrets(dag.secrets.as_deref().unwrap_or_default(), problems);
    check_actions(dag, problems);
    if dag.defaults.is_some() {
        for key in problems.keys_at(&at!["defaults"]) {
            if !has_word(DEFAULT_KEYS, key) {
                let message = format!("has no default; those that have are {DEFAULT_KEYS}");
                problems.add_key(&at!["defaults", key], message);
            }
        }
    }
    if dag.dag_type == Some(DagType::Build) {
        problems.add(&at!["type"], not_here("build"));
    }
    check_agent(dag, problems);
}

/// Checks what a DAG of today's notation cannot have; the old one had it without an effect here.
fn check_todays(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    if matches!(dag.steps, DagSteps::Map(_)) {
        let message = "steps of today's notation are a list (a sequence): `- name: …`";
        problems.add(&at!["steps"], message);
    }
    let is_local = dag.worker_selector.as_ref().is_some_and(|it| it == "local");
    for key in problems.keys_at(&at![]) {
        if has_word("otel ssh s3 redis kubernetes", key) || key == "worker_selector" && !is_local {
            problems.add_key(&at![key], not_here(key));
        }
    }
}

/// Checks what only a DAG of type `agent` has, and what it needs.
fn check_agent(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    let tasks = dag.tasks.as_deref().unwrap_or_default();
    if dag.order() != DagType::Agent {
        if dag.tasks.is_some() {
            problems.add_key(&at!["tasks"], "needs `type: agent`");
        }
        for key in problems.keys_at(&at!["llm"]) {
            if has_word(AGENT_MODEL_KEYS, key) {
                problems.add_key(&at!["llm", key], "needs `type: agent`");
            }
        }
        return;
    }
    if dag.llm.is_none() {
        problems.add(
            &at![],
            "a DAG of type `agent` needs a model: add `llm` with `provider` and `model`",
        );
    }
    if tasks.is_empty() {
        problems.add(&at!["tasks"], "a DAG of type `agent` needs `tasks`, at least one");
    }
    let mut names = HashSet::new();
    for (index, task) in tasks.iter().enumerate() {
        if !names.insert(task.name.trim()) {
            let message = format!("another task has the name `{:.60}`", task.name);
            problems.add(&at!["tasks", index, "name"], message);
        }
    }
}

fn check_secrets(secrets: &[DagSecret], problems: &mut ProblemList<'_>) {
    for (index, secret) in secrets.iter().enumerate() {
        let at = at!["secrets", index];
        let name = &secret.name;
        if name.starts_with("DAGU_") || name.starts_with("DAG_") {
            let message = format!("the run itself sets `{name:.60}`: give the secret another name");
            problems.add(&at.join("name"), message);
        }
        let stored = secret.provider.is_some() && secret.key.is_some();
        let in_part = secret.provider.is_some() || secret.key.is_some() || secret.options.is_some();
        let is_whole = if secret.reference.is_some() { !in_part } else { stored };
        if !is_whole {
            problems.add(&at, "needs either `ref`, or `provider` and `key`");
        }
    }
}

fn check_actions(dag: &DagManifest, problems: &mut ProblemList<'_>) {
    for (name, own) in dag.actions.iter().flatten() {
        let at = at!["actions", name];
        if action::is_builtin(name) || action::instead_of(name).is_some() {
            problems.add_key(&at, "is the name of an action that is there already");
        } else if !action::is_action_name(name) {
            problems.add_key(&at, "is not a name: words with dots between, as `team.notify`");
        }
        check_json_schema(&own.input_schema, &at.join("input_schema"), problems);
        if let Some(schema) = &own.output_schema {
            check_json_schema(schema, &at.join("output_schema"), problems);
        }
        let at = at.join("template");
        if own.template.contains_key("run") == own.template.contains_key("action") {
            problems.add(&at, "needs exactly one of `run` and `action`");
        }
        step_rules::check_old_keys("actions", &at, problems);
    }
    for (name, harness) in dag.harnesses.iter().flatten() {
        let Some(harness) = harness else { continue };
        let is_flag = harness.prompt_mode == Some(super::root::DagPromptMode::Flag);
        if is_flag != harness.prompt_flag.is_some() {
            problems.add(
                &at!["harnesses", name],
                "`prompt_mode: flag` and `prompt_flag` need each other",
            );
        }
    }
    if dag.harness.as_ref().is_some_and(|it| !it.contains_key("provider")) {
        problems.add(&at!["harness"], "the key `provider` is missing");
    }
}

/// Checks names and values of an environment.
pub(super) fn check_env(env: Option<&DagEnv>, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let named = |map: &JsonObject, at: &ManifestPath, problems: &mut ProblemList<'_>| {
        for (name, value) in map {
            if !is_variable(name) {
                problems.add_key(&at.join(name), no_variable(name));
            } else if value.is_array() || value.is_object() {
                problems.add(&at.join(name), "expected a text, a number, or true or false");
            }
        }
    };
    match env {
        Some(DagEnv::Map(map)) => named(map, at, problems),
        Some(DagEnv::List(items)) => {
            for (index, item) in items.iter().enumerate() {
                match item {
                    DagEnvItem::Map(map) => named(map, &at.join(index), problems),
                    DagEnvItem::Pair(pair) => match pair.split_once('=') {
                        Some((name, _)) if is_variable(name) => {}
                        Some((name, _)) => problems.add(&at.join(index), no_variable(name)),
                        None => {
                            let message = format!("`{pair:.60}` is not `NAME=value`");
                            problems.add(&at.join(index), message);
                        }
                    },
                }
            }
        }
        None => {}
    }
}

fn no_variable(name: &str) -> String {
    format!("`{name:.60}` is not a name: a letter or `_`, then letters, digits and `_`")
}

fn check_names(steps: &[PlacedStep<'_>], outer: &[&HashSet<&str>], problems: &mut ProblemList<'_>) {
    let mut names: HashMap<&str, &ManifestPath> = HashMap::new();
    for placed in steps {
        let Some(name) = placed.name else { continue };
        // A step without a name has its id for one.
        let key =
            placed.step.map_or("name", |step| if step.name.is_some() { "name" } else { "id" });
        if key == "name"
            && let Some(first) = names.insert(name, &placed.path)
        {
            let message =
                format!("the name of {first} is the same: each step needs one of its own");
            problems.add(&placed.path.join("name"), message);
        }
        if name.len() > 255 {
            problems.add(&placed.path.join("name"), "is longer than 255 bytes");
        }
        if name == AGENT_STEP || placed.id() == Some(AGENT_STEP) {
            let message = format!("`{AGENT_STEP}` is reserved: the agent is this step");
            problems.add(&placed.path.join(key), message);
        }
        if outer.iter().any(|outer| outer.contains(name)) {
            let message = format!("a step around `foreach` has the name or id `{name:.60}`");
            problems.add(&placed.path.join(key), message);
        }
    }
    let mut ids = HashSet::new();
    for placed in steps {
        let Some(id) = placed.id() else { continue };
        let at = placed.path.join("id");
        if RESERVED_IDS.contains(&&*id.to_ascii_lowercase()) {
            problems.add(&at, format!("`{id}` is reserved: references use it for something else"));
        }
        if !ids.insert(id) {
            problems.add(&at, format!("another step has the id `{id}`"));
        } else if names.get(id).is_some_and(|named| **named != placed.path) {
            problems.add(&at, format!("another step is named `{id}`"));
        }
        if placed.name != Some(id) && outer.iter().any(|outer| outer.contains(id)) {
            problems.add(&at, format!("a step around `foreach` has the name or id `{id}`"));
        }
    }
}

fn check_step(
    step: &DagStep,
    place: StepPlace,
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if step.run.is_some() || step.action.is_some() || step.foreach.is_some() {
        commands::check_signal(step, at, problems);
    } else {
        commands::check(step, names, at, problems);
    }
    step_rules::check(step, place, names, at, problems);
    check_env(step.env.as_ref(), &at.join("env"), problems);
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
    let DagPrecondition { condition, eval, expected, .. } = condition;
    match (condition, eval, expected) {
        (Some(_), Some(_), _) => problems.add(at, "`condition` excludes `eval`: keep one of them"),
        (None, None, _) => problems.add(at, "needs `condition`, or `eval` with `expected`"),
        (None, Some(_), None) => problems.add(at, "`eval` needs `expected`"),
        _ => {}
    }
    let Some(text) = expected else { return };
    if text == "re:" {
        problems.add(&at.join("expected"), "needs a regular expression behind `re:`");
    }
    check_pattern(text, &at.join("expected"), problems);
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
    names: &ActionNames<'_>,
    problems: &mut ProblemList<'_>,
) {
    for (name, step) in handlers.iter().flat_map(|handlers| handlers.all()) {
        let at = at!["handler_on", name];
        check_step(step, StepPlace::Handler, names, &at, problems);
        if let Some(foreach) = &step.foreach {
            check_foreach(foreach, &[], names, &at.join("foreach"), problems);
        }
        for (field, given) in
            [("depends", step.depends.is_some()), ("approval", step.approval.is_some())]
        {
            if given {
                problems.add_key(&at.join(field), format!("a handler has no `{field}`"));
            }
        }
    }
}
