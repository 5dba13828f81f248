//! Fields of a DAG that a run does not obey yet: it is refused, so that none is passed over in silence.

use hivekeep_manifest::{
    common::JsonObject,
    dag::{
        DagGroupEntry, DagManifest, DagStep, DagStepEntry, DagSteps, DagStream, action::instead_of,
    },
};
use hivekeep_plan::lower::{DECIDE, StepWork};
use serde_json::{Map, Value};

use crate::secrets::secret_not_here;

/// Settings of a question to a model that are obeyed. `stream` changes nothing of what a step leaves.
const CHAT_KEYS: [&str; 8] =
    ["prompt", "messages", "model", "provider", "system", "temperature", "max_tokens", "stream"];
/// Settings of a DAG's model that are of its agent, and of no question of a step.
const AGENT_KEYS: [&str; 4] = [
    "max_tool_iterations",
    "max_context_tokens",
    "observation_max_bytes",
    "observation_keep_recent",
];
/// First parts of actions that a file may have and no run does, with what to do instead.
const NOT_RUN: [(&str, &str); 2] = [
    ("archive", "call `tar` or `unzip` by `run`"),
    ("data", "select by `jq.filter`, or convert by a command in `run`"),
];
/// Actions that write no output.
const WITHOUT_OUTPUT: [&str; 5] = ["dag.run", "dag.enqueue", "foreach", "human.task", "noop"];
/// Settings of a model in a list that are obeyed.
const CHAT_MODEL_KEYS: [&str; 4] = ["provider", "name", "temperature", "max_tokens"];
/// Settings of one that are not, with what to do instead.
const INSTEAD: [(&str, &str); 7] = [
    ("base_url", "the operator configures the provider by its name: remove it"),
    ("api_key_name", "the operator configures the provider's key: remove it"),
    ("top_p", "write `temperature`"),
    ("thinking", "the operator configures it with the model: remove it"),
    ("web_search", "call a tool by a step of its own"),
    ("tools", "have an agent do it"),
    ("max_tool_iterations", "have an agent do it"),
];

/// The first field that would be passed over, as it is named to people.
pub(super) fn not_obeyed(dag: &DagManifest) -> Option<String> {
    let root = [
        ("tools", dag.tools.is_some()),
        ("resources", dag.resources.is_some()),
        ("artifacts", dag.artifacts.is_some()),
        ("step_types", dag.step_types.is_some()),
        ("worker_selector", dag.worker_selector.as_ref().is_some_and(|it| it != "local")),
        ("retry_policy", dag.retry_policy.is_some() && has_agent(dag)),
    ];
    let of_root = root.into_iter().find(|(_, there)| *there);
    if let Some((field, _)) = of_root {
        return Some(format!("`{field}`"));
    }
    if let Some(secret) = secret_not_here(dag) {
        return Some(secret);
    }
    steps(dag).into_iter().find_map(|step| {
        let of_agent = [("approval", step.approval.is_some()), ("fork", step.fork == Some(true))];
        let of_agent = of_agent.into_iter().find(|(_, there)| *there && has_agent(dag));
        let field = of_step(step).or(of_agent.map(|(field, _)| field))?;
        Some(format!("`{field}` of the step `{}`", step.name().unwrap_or("without a name")))
    })
}

/// Whether the DAG, or that of which it is the body of a loop, has an agent: no other one has tasks.
fn has_agent(dag: &DagManifest) -> bool {
    dag.tasks.is_some()
}

/// The first step whose action, or old type, is not here, with what to do instead.
pub(super) fn not_here(dag: &DagManifest) -> Option<String> {
    let named = |step: &DagStep| {
        let names = [step.action.clone(), step.step_type.clone()].into_iter().flatten();
        let not_run = |name: &str| {
            let group = name.split('.').next();
            NOT_RUN.iter().find(|(one, _)| Some(*one) == group).map(|(_, instead)| *instead)
        };
        let mut known =
            names.filter_map(|name| Some((instead_of(&name).or_else(|| not_run(&name))?, name)));
        let (instead, name) = known.next()?;
        let step = step.name().unwrap_or("without a name");
        Some(format!("`{name:.80}` of the step `{step:.80}` is not here: {instead}"))
    };
    steps(dag).into_iter().find_map(named)
}

fn of_step(step: &DagStep) -> Option<&'static str> {
    let fields = [
        ("dependencies", step.dependencies.is_some()),
        ("inputs", step.inputs.is_some()),
        ("mail_on_error", step.mail_on_error == Some(true)),
        ("shell_packages", step.shell_packages.is_some()),
        ("signal_on_stop", step.signal_on_stop.is_some()),
        ("worker_selector", step.worker_selector.as_ref().is_some_and(|it| it != "local")),
    ];
    let with = step.settings.as_ref().or(step.config.as_ref());
    let packages = with.is_some_and(|with| with.contains_key("shell_packages"));
    let found = fields.into_iter().find(|(_, there)| *there).map(|(field, _)| field);
    found.or_else(|| packages.then_some("with.shell_packages"))
}

/// The first setting of a step that would be passed over.
pub(super) fn setting_not_obeyed(work: &StepWork, dag: &DagManifest) -> Option<String> {
    if work.step.output_schema.is_some() && WITHOUT_OUTPUT.contains(&work.action.as_str()) {
        return Some(format!("`output_schema` of `{}`", work.action));
    }
    let is_chat = ["chat.completion", DECIDE].contains(&work.action.as_str());
    if !is_chat && work.action != "harness.run" {
        return None;
    }
    let streams = [("stdout", &work.step.stdout), ("stderr", &work.step.stderr)];
    let mut files = streams.into_iter().filter(|(_, it)| matches!(it, Some(DagStream::File(_))));
    let file = files
        .next()
        .map(|(name, _)| format!("`{name}` as a file (write its `output` by a step behind it)"));
    file.or_else(|| chat_not_obeyed(work, dag).filter(|_| is_chat))
}

/// The first setting of a question that no run obeys, as it is named to people.
fn chat_not_obeyed(work: &StepWork, dag: &DagManifest) -> Option<String> {
    if work.step.outputs.is_some() {
        return Some("`outputs` (take them from the answer by `output`)".to_owned());
    }
    let with = chat_settings(work.with.clone(), dag);
    let of_models = with.get("model").and_then(Value::as_array).into_iter().flatten();
    let of_models = of_models.filter_map(Value::as_object).flat_map(Map::keys);
    let unknown = with.keys().filter(|key| !CHAT_KEYS.contains(&key.as_str()));
    let of_models = of_models.filter(|key| !CHAT_MODEL_KEYS.contains(&key.as_str()));
    unknown.chain(of_models).next().map(|key| {
        let known = INSTEAD.iter().find(|(name, _)| name == key);
        let instead = known.map_or("remove it", |(_, instead)| *instead);
        let whose = if work.action == DECIDE { "llm" } else { "chat.completion" };
        format!("`{key:.80}` of `{whose}` ({instead})")
    })
}

/// Settings of a question, with the DAG's own where it has none.
pub(super) fn chat_settings(with: JsonObject, dag: &DagManifest) -> JsonObject {
    let of_dag = dag.llm.as_ref().and_then(|llm| serde_json::to_value(llm).ok());
    let mut all = match of_dag {
        Some(Value::Object(all)) => all,
        _ => JsonObject::new(),
    };
    if has_agent(dag) {
        all.retain(|key, _| !AGENT_KEYS.contains(&key.as_str()));
    }
    all.extend(with);
    all.retain(|_, value| !value.is_null());
    all
}

/// All steps of a DAG, with those of loops and handlers.
pub(crate) fn steps(dag: &DagManifest) -> Vec<&DagStep> {
    let mut open: Vec<&DagStep> = match &dag.steps {
        DagSteps::Map(steps) => steps.values().collect(),
        DagSteps::List(entries) => entries.iter().flat_map(of_entry).collect(),
    };
    open.extend(dag.handler_on.iter().flat_map(|handlers| handlers.all()).map(|(_, step)| step));
    let mut found = Vec::new();
    while let Some(step) = open.pop() {
        open.extend(step.foreach.iter().flat_map(|foreach| &foreach.steps));
        found.push(step);
    }
    found
}

fn of_entry(entry: &DagStepEntry) -> Vec<&DagStep> {
    match entry {
        DagStepEntry::Command(_) => Vec::new(),
        DagStepEntry::Step(step) => vec![step],
        DagStepEntry::Group(group) => {
            let steps = group.iter().filter_map(|entry| match entry {
                DagGroupEntry::Command(_) => None,
                DagGroupEntry::Step(step) => Some(&**step),
            });
            steps.collect()
        }
    }
}
