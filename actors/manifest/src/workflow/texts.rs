//! Texts of a workflow that name values: its templates and expressions, and the names that they may use.

use std::collections::{BTreeSet, HashSet};

use hivekeep_runtime::{
    expression::Expression,
    template::{TemplateHelpers, TextTemplate},
};
use serde_json::Value;

use super::{
    ContainerStep, PanelJudge, TransitionCondition, WorkflowManifest, WorkflowSpec, WorkflowState,
};
use crate::{
    common::{JsonObject, Labels, OutputHandler},
    problems::{MAX_PROBLEMS, ManifestPath, ProblemList, at, not_there},
};

/// Keys that have a meaning of their own on the blackboard or in templates: neither a context, nor who starts a run,
/// nor a state may set them.
pub const RESERVED_KEYS: [&str; 12] = [
    "blackboard",
    "context",
    "feedback",
    "human",
    "input",
    "instruction",
    "intent",
    "iteration_number",
    "previous_error",
    "state",
    "tenant_id",
    "workflow",
];
/// Names that templates and expressions have beside the keys of the blackboard and the states.
pub const RUN_NAMES: [&str; 8] =
    ["blackboard", "feedback", "human", "input", "intent", "state", "tenant_id", "workflow"];
/// Names that only expressions have: the output of the state that has ended, and its parts.
pub const OUTPUT_NAMES: [&str; 6] =
    ["confidence", "exit_code", "output", "score", "state_output", "status"];
/// Command of a System state that sets keys of the blackboard to its environment, and runs nothing.
pub const UPDATE_BLACKBOARD: &str = "update_blackboard";
/// Key for the volume of the workspace that states share, where the manifest names none.
pub const WORKSPACE_KEY: &str = "workspace_volume_id";

/// Kind of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Template,
    /// Template of an output's handler, which names the output too.
    Handler,
    /// Template of the name of an agent.
    Agent,
}

struct WorkflowText<'w> {
    path: ManifestPath,
    kind: TextKind,
    text: &'w str,
}

impl WorkflowSpec {
    /// Names that templates of the workflow may use.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names: BTreeSet<_> = RUN_NAMES.into_iter().collect();
        names.extend(self.states.keys().map(String::as_str));
        names.extend(self.context.iter().flatten().map(|(key, _)| key.as_str()));
        let workspace = self.storage.as_ref().and_then(|storage| storage.workspace.as_ref());
        names.extend(workspace.map(|it| it.blackboard_key.as_deref().unwrap_or(WORKSPACE_KEY)));
        for state in self.states.values() {
            match state {
                WorkflowState::Subworkflow { result_key, .. } => {
                    names.extend(result_key.as_deref())
                }
                WorkflowState::System { command, env, .. } if command == UPDATE_BLACKBOARD => {
                    names.extend(env.iter().flatten().map(|(key, _)| key.as_str()));
                }
                _ => {}
            }
        }
        names
    }

    /// Names that expressions of the workflow may use.
    pub fn expression_names(&self) -> BTreeSet<&str> {
        let mut names = self.names();
        names.extend(OUTPUT_NAMES);
        names
    }

    /// Agents that states name, with the fields that they are named in; those of templates are left out.
    pub fn agents(&self) -> Vec<(String, &str)> {
        self.named_agents().map(|it| (it.path.to_string(), it.text)).collect()
    }

    fn named_agents(&self) -> impl Iterator<Item = WorkflowText<'_>> {
        let texts = self.states.iter().flat_map(|(name, state)| texts(name, state));
        texts.filter(|it| it.kind == TextKind::Agent && !it.text.contains("{{"))
    }
}

/// Tells agents that are not among the known names and ids.
pub(crate) fn check_agents(
    workflow: &WorkflowManifest,
    known: &[&str],
    problems: &mut ProblemList<'_>,
) {
    let all: HashSet<_> = known.iter().copied().collect();
    let missing = workflow.spec.named_agents().filter(|it| !all.contains(it.text));
    for WorkflowText { path, text, .. } in missing.take(MAX_PROBLEMS) {
        problems.add(&path, not_there("agent", text, known));
    }
}

/// Expression of a `custom` transition without the braces of a template, which published examples have around it.
pub fn expression_text(text: &str) -> &str {
    let inner = text.trim().strip_prefix("{{").and_then(|inner| inner.strip_suffix("}}"));
    inner.unwrap_or(text)
}

/// Checks the templates and the expressions.
pub(super) fn check(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    let spec = &workflow.spec;
    let (names, in_expressions) = (spec.names(), spec.expression_names());
    let mut in_handlers = names.clone();
    in_handlers.insert("output");
    let texts = spec.states.iter().flat_map(|(name, state)| texts(name, state));
    let mut list = TextList(texts.collect());
    let output = &workflow.metadata.output_template;
    list.object(&at!["metadata", "output_template"], TextKind::Template, output.as_ref());
    for WorkflowText { path, kind, text } in list.0 {
        let names = if kind == TextKind::Handler { &in_handlers } else { &names };
        let template = TextTemplate::parse(text, TemplateHelpers::Values);
        if let Err(why) = template.and_then(|template| template.check(names)) {
            problems.add(&path, format!("is not a usable template: {why}"));
        }
    }
    for (name, state) in &spec.states {
        for (index, transition) in state.transitions().iter().enumerate() {
            if let (TransitionCondition::Custom, Some(text)) =
                (transition.condition, &transition.expression)
                && let Err(why) = Expression::new(expression_text(text), &in_expressions)
            {
                let path = at!["spec", "states", name, "transitions", index, "expression"];
                problems.add(&path, why);
            }
        }
    }
}

/// Texts of a state.
fn texts<'w>(name: &str, state: &'w WorkflowState) -> Vec<WorkflowText<'w>> {
    use TextKind::{Agent, Template};
    let at = &at!["spec", "states", name];
    let mut list = TextList(Vec::new());
    for (index, transition) in state.transitions().iter().enumerate() {
        let at = at.join("transitions").join(index);
        list.put(&at, "feedback", Template, transition.feedback.as_deref());
    }
    match state {
        WorkflowState::Agent {
            agent,
            input,
            intent,
            pre_execution_validator: validator,
            judges,
            output_handler,
            ..
        } => {
            list.put(at, "agent", Agent, Some(agent));
            list.put(at, "input", Template, Some(input));
            list.put(at, "intent", Template, intent.as_deref());
            list.put(at, "pre_execution_validator", Agent, validator.as_deref());
            list.judges(&at.join("judges"), judges.as_deref());
            list.handler(at, output_handler.as_ref());
        }
        WorkflowState::System { command, env, workdir, .. } => {
            list.put(at, "command", Template, Some(command));
            list.put(at, "workdir", Template, workdir.as_deref());
            list.labels(&at.join("env"), Template, env.as_ref());
        }
        WorkflowState::Human { prompt, .. } => list.put(at, "prompt", Template, Some(prompt)),
        WorkflowState::ParallelAgents { agents, judges_for_parallel, output_handler, .. } => {
            for (index, one) in agents.iter().enumerate() {
                let at = at.join("agents").join(index);
                list.put(&at, "agent", Agent, Some(&one.agent));
                list.put(&at, "input", Template, Some(&one.input));
            }
            list.judges(&at.join("judges_for_parallel"), judges_for_parallel.as_deref());
            list.handler(at, output_handler.as_ref());
        }
        WorkflowState::ContainerRun { image, command, env, workdir, output_handler, .. } => {
            list.container(at, image, command, (env.as_ref(), workdir.as_deref()));
            list.handler(at, output_handler.as_ref());
        }
        WorkflowState::ParallelContainerRun { steps, output_handler, .. } => {
            for (index, ContainerStep { image, command, env, workdir, .. }) in
                steps.iter().enumerate()
            {
                let at = at.join("steps").join(index);
                list.container(&at, image, command, (env.as_ref(), workdir.as_deref()));
            }
            list.handler(at, output_handler.as_ref());
        }
        WorkflowState::Subworkflow { workflow_id, input, .. } => {
            list.put(at, "workflow_id", Template, Some(workflow_id));
            list.put(at, "input", Template, input.as_deref());
        }
    }
    list.0
}

struct TextList<'w>(Vec<WorkflowText<'w>>);

impl<'w> TextList<'w> {
    fn put(&mut self, at: &ManifestPath, field: &str, kind: TextKind, text: Option<&'w str>) {
        self.0.extend(text.map(|text| WorkflowText { path: at.join(field), kind, text }));
    }

    fn labels(&mut self, at: &ManifestPath, kind: TextKind, labels: Option<&'w Labels>) {
        for (key, text) in labels.into_iter().flatten() {
            self.put(at, key, kind, Some(text));
        }
    }

    fn list(&mut self, at: &ManifestPath, kind: TextKind, list: &'w [String]) {
        for (index, text) in list.iter().enumerate() {
            self.put(at, &index.to_string(), kind, Some(text));
        }
    }

    fn container(
        &mut self,
        at: &ManifestPath,
        image: &'w str,
        command: &'w [String],
        (env, workdir): (Option<&'w Labels>, Option<&'w str>),
    ) {
        self.put(at, "image", TextKind::Template, Some(image));
        self.list(&at.join("command"), TextKind::Template, command);
        self.labels(&at.join("env"), TextKind::Template, env);
        self.put(at, "workdir", TextKind::Template, workdir);
    }

    fn judges(&mut self, at: &ManifestPath, judges: Option<&'w [PanelJudge]>) {
        for (index, judge) in judges.unwrap_or_default().iter().enumerate() {
            let at = at.join(index);
            self.put(&at, "agent_id", TextKind::Agent, Some(&judge.agent_id));
            self.put(&at, "input_template", TextKind::Template, judge.input_template.as_deref());
        }
    }

    fn handler(&mut self, at: &ManifestPath, handler: Option<&'w OutputHandler>) {
        let at = &at.join("output_handler");
        let kind = TextKind::Handler;
        match handler {
            Some(OutputHandler::Agent { agent_id, input_template, .. }) => {
                self.put(at, "agent_id", TextKind::Agent, Some(agent_id));
                self.put(at, "input_template", kind, input_template.as_deref());
            }
            Some(OutputHandler::Container { command, env, .. }) => {
                self.list(&at.join("command"), kind, command);
                self.labels(&at.join("env"), kind, env.as_ref());
            }
            Some(OutputHandler::McpTool { arguments, .. }) => {
                self.object(&at.join("arguments"), kind, arguments.as_ref());
            }
            Some(OutputHandler::Webhook { url, headers, body_template, .. }) => {
                self.put(at, "url", kind, Some(url));
                self.labels(&at.join("headers"), kind, headers.as_ref());
                self.put(at, "body_template", kind, body_template.as_deref());
            }
            None => {}
        }
    }

    fn object(&mut self, at: &ManifestPath, kind: TextKind, object: Option<&'w JsonObject>) {
        for (key, value) in object.into_iter().flatten() {
            self.value(at, key, kind, value);
        }
    }

    fn value(&mut self, at: &ManifestPath, step: &str, kind: TextKind, value: &'w Value) {
        match value {
            Value::String(text) => self.put(at, step, kind, Some(text)),
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    self.value(&at.join(step), &index.to_string(), kind, value);
                }
            }
            Value::Object(object) => self.object(&at.join(step), kind, Some(object)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
