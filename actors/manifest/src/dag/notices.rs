//! Notices of references that have no value, and of steps that do nothing.

use std::collections::{HashMap, HashSet};

use hivekeep_ports::ManifestProblem;
use serde_json::Value;

use super::{
    DagManifest, DagType, action, commands,
    graph::{PlacedStep, StepOrder, placed, placed_body},
    has_word,
    output::DagOutput,
    reference::{Reference, ReferencePath, references},
    step::{DagForeach, DagStep},
};
use crate::{
    problems::{ManifestPath, ProblemList, at, problem},
    yaml::{YamlContent, YamlNode},
};

/// Most notices of one document; more are not looked for.
const MAX_NOTICES: usize = 100;
/// Keys of the root whose texts have references.
const ROOT_KEYS: &str = "dotenv shell shell_args working_dir preconditions container llm tasks";
/// Keys of a step whose texts have references, beside `with`, `env` and `foreach`.
const STEP_KEYS: &str = "run command script exec shell shell_args working_dir preconditions \
    retry_policy repeat_policy call params parallel stdout stderr output container config llm \
    messages value";

/// Notice of a reference that stays as it is written, or of a step that does nothing. The DAG is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagNotice {
    /// Place, and what is said of it.
    pub told: ManifestProblem,
    /// Whether a run can have a value.
    pub class: NoticeClass,
}

/// Whether a run can have a value of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeClass {
    /// No run has one: it is told always.
    Defect,
    /// The caller, the environment or the run gives one: it is told when asked for.
    Runtime,
}

/// Steps that a text can name, and the step that it belongs to.
#[derive(Clone, Copy)]
struct StepScope<'s> {
    steps: &'s [PlacedStep<'s>],
    ids: &'s HashMap<&'s str, usize>,
    order: &'s StepOrder,
    /// `None` for what is done after all of them.
    owner: Option<usize>,
    outer: Option<&'s StepScope<'s>>,
}

/// Names that a text can use.
#[derive(Clone, Copy, Default)]
struct Scope<'s> {
    /// Constants before this one, within the list of constants.
    constants_before: Option<usize>,
    steps: Option<&'s StepScope<'s>>,
    /// Names of the items of each `foreach` around.
    items: &'s [&'s str],
}

struct NoticeWalk<'d> {
    document: &'d YamlNode,
    constants: HashMap<&'d str, usize>,
    /// Parameters with whether there is a value without the caller.
    params: HashMap<&'d str, bool>,
    /// Environment that is declared before the text.
    env: HashSet<String>,
    path: Vec<String>,
    found: Vec<DagNotice>,
}

/// Notices of a valid DAG in the order of its text.
pub(crate) fn notices(dag: &DagManifest, document: &YamlNode) -> Vec<DagNotice> {
    let constants = dag.consts.iter().flatten().enumerate();
    let constants = constants.flat_map(|(index, it)| it.keys().map(move |key| (&**key, index)));
    let params: HashMap<_, _> = dag.params.iter().flat_map(|params| params.names()).collect();
    let mut walk = NoticeWalk {
        document,
        constants: constants.collect(),
        env: params.keys().map(|name| (*name).to_owned()).collect(),
        params,
        path: Vec::new(),
        found: Vec::new(),
    };
    walk.root(dag);
    walk.found.sort_by_key(|notice| (notice.told.line, notice.told.column));
    walk.found
}

impl<'d> NoticeWalk<'d> {
    fn root(&mut self, dag: &DagManifest) {
        for (key, _, node) in self.document.entries() {
            self.below(key, |walk| match key.as_str() {
                "consts" => walk.constants(node),
                "params" => walk.evals(node),
                "env" => _ = walk.env(node, Scope::default()),
                key if has_word(ROOT_KEYS, key) => walk.texts(node, Scope::default()),
                _ => {}
            });
        }
        self.env.extend(dag.secrets.iter().flatten().map(|secret| secret.name.clone()));
        for (name, handler) in dag.handler_on.iter().flat_map(|handlers| handlers.all()) {
            let path = at!["handler_on", name];
            if let Some(node) = self.document.node(&path.0) {
                self.path = path.0;
                self.step(Some(handler), node, Scope::default());
            }
        }
        self.list(&placed(&dag.steps), dag.order(), Scope::default());
    }

    /// Runs something with a part more in the path.
    fn below(&mut self, part: impl ToString, run: impl FnOnce(&mut Self)) {
        self.path.push(part.to_string());
        run(self);
        self.path.pop();
    }

    fn constants(&mut self, node: &YamlNode) {
        let YamlContent::List(items) = &node.content else { return };
        for (index, item) in items.iter().enumerate() {
            let scope = Scope { constants_before: Some(index), ..Scope::default() };
            self.below(index, |walk| walk.texts(item, scope));
        }
    }

    fn evals(&mut self, node: &YamlNode) {
        let YamlContent::List(items) = &node.content else { return };
        for (index, item) in items.iter().enumerate() {
            let eval = item.entries().iter().find(|(key, ..)| key == "eval");
            if let Some((key, _, node)) = eval {
                self.below(index, |walk| {
                    walk.below(key, |walk| walk.texts(node, Scope::default()));
                });
            }
        }
    }

    /// Texts of an environment, whose entries see those before them. Names that are new.
    fn env(&mut self, node: &YamlNode, scope: Scope<'_>) -> Vec<String> {
        let mut new = Vec::new();
        let mut entry = |walk: &mut Self, name: &str, part: String, node: &YamlNode| {
            walk.below(part, |walk| walk.texts(node, scope));
            if walk.env.insert(name.to_owned()) {
                new.push(name.to_owned());
            }
        };
        let list = std::slice::from_ref(node);
        let list = if let YamlContent::List(items) = &node.content { items } else { list };
        let is_list = !std::ptr::eq(list.as_ptr(), node);
        for (index, item) in list.iter().enumerate() {
            match &item.content {
                YamlContent::Scalar(Value::String(pair)) => {
                    let name = pair.split('=').next().unwrap_or_default();
                    entry(self, name, index.to_string(), item);
                }
                _ => {
                    for (name, _, value) in item.entries() {
                        let part = if is_list { index.to_string() } else { name.clone() };
                        entry(self, name, part, value);
                    }
                }
            }
        }
        new
    }

    fn list(&mut self, steps: &[PlacedStep<'_>], order: DagType, scope: Scope<'_>) {
        let mut none = ProblemList::of(self.document);
        let order = StepOrder::of(order, steps, &mut none);
        let ids = steps.iter().enumerate().filter_map(|(at, step)| Some((step.id()?, at)));
        let ids: HashMap<_, _> = ids.collect();
        let outputs = steps.iter().filter_map(|placed| match &placed.step?.output {
            Some(DagOutput::Variable(name)) => Some(name.trim_matches(['$', '{', '}']).to_owned()),
            _ => None,
        });
        self.env.extend(outputs);
        for (index, placed) in steps.iter().enumerate() {
            let Some(node) = self.document.node(&placed.path.0) else { continue };
            self.path = placed.path.0.clone();
            let own = StepScope {
                steps,
                ids: &ids,
                order: &order,
                owner: Some(index),
                outer: scope.steps,
            };
            self.step(placed.step, node, Scope { steps: Some(&own), ..scope });
        }
        self.path.clear();
    }

    fn step(&mut self, step: Option<&DagStep>, node: &YamlNode, scope: Scope<'_>) {
        let Some(step) = step else { return self.texts(node, scope) };
        if commands::is_idle(step) {
            let message = "does nothing: give it `run`, `action` or `foreach`";
            self.put(NoticeClass::Defect, node, message.to_owned());
        }
        let find = |key: &str| node.entries().iter().find(|(name, ..)| name == key);
        let mut new = Vec::new();
        if let Some((key, _, env)) = find("env") {
            self.below(key, |walk| new = walk.env(env, scope));
        }
        for (key, _, node) in node.entries() {
            match key.as_str() {
                "with" => self.below(key, |walk| walk.with(step, node, scope)),
                key if has_word(STEP_KEYS, key) => self.below(key, |walk| walk.texts(node, scope)),
                _ => {}
            }
        }
        if let (Some(foreach), Some((key, _, node))) = (&step.foreach, find("foreach")) {
            self.below(key, |walk| walk.foreach(foreach, node, scope));
        }
        new.iter().for_each(|name| _ = self.env.remove(name));
    }

    /// Settings of an action; a template and a form are as they are written.
    fn with(&mut self, step: &DagStep, node: &YamlNode, scope: Scope<'_>) {
        let literal = match step.action.as_deref() {
            Some("template.render") => "template",
            Some("human.task") => "form",
            _ => "",
        };
        for (key, _, node) in node.entries().iter().filter(|(key, ..)| key != literal) {
            self.below(key, |walk| walk.texts(node, scope));
        }
    }

    fn foreach(&mut self, foreach: &DagForeach, node: &YamlNode, scope: Scope<'_>) {
        let item = foreach.item_name.as_deref().unwrap_or("item");
        let items: Vec<_> = scope.items.iter().copied().chain([item]).collect();
        let inner = Scope { items: &items, ..scope };
        let path = self.path.clone();
        let body = placed_body(&foreach.steps, &ManifestPath(path.clone()).join("steps"));
        for (key, _, node) in node.entries() {
            match key.as_str() {
                "items" => self.below(key, |walk| walk.texts(node, scope)),
                "key" => self.below(key, |walk| walk.texts(node, inner)),
                "steps" => self.list(&body, DagType::Graph, inner),
                "collect" => {
                    let ids = body.iter().enumerate();
                    let ids = ids.filter_map(|(at, step)| Some((step.id()?, at))).collect();
                    let (order, outer) = (&StepOrder::Free, scope.steps);
                    let own = StepScope { steps: &body, ids: &ids, order, owner: None, outer };
                    let after = Scope { steps: Some(&own), ..inner };
                    self.below(key, |walk| walk.texts(node, after));
                }
                _ => {}
            }
            self.path.clone_from(&path);
        }
    }

    /// References of all texts of a value.
    fn texts(&mut self, node: &YamlNode, scope: Scope<'_>) {
        match &node.content {
            YamlContent::Scalar(Value::String(text)) => {
                for reference in references(text).filter(|reference| !reference.is_escaped) {
                    self.reference(&reference, text, node, scope);
                }
            }
            YamlContent::Scalar(_) => {}
            YamlContent::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.below(index, |walk| walk.texts(item, scope));
                }
            }
            YamlContent::Map(entries) => {
                for (key, _, value) in entries {
                    self.below(key, |walk| match key.as_str() {
                        "env" => {
                            let new = walk.env(value, scope);
                            new.iter().for_each(|name| _ = walk.env.remove(name));
                        }
                        _ => walk.texts(value, scope),
                    });
                }
            }
        }
    }

    fn reference(&mut self, found: &Reference<'_>, text: &str, node: &YamlNode, scope: Scope<'_>) {
        let Some((class, reason)) = self.missing(&found.path, scope) else { return };
        let written = text.get(found.range.clone()).unwrap_or_default();
        self.put(class, node, format!("`{written:.200}` stays as it is: {reason}"));
    }

    fn put(&mut self, class: NoticeClass, node: &YamlNode, message: String) {
        let told = problem(node.at, &ManifestPath(self.path.clone()), message);
        let notice = DagNotice { told, class };
        if self.found.len() < MAX_NOTICES && !self.found.contains(&notice) {
            self.found.push(notice);
        }
    }

    /// Why a reference has no value here.
    fn missing(
        &self,
        path: &ReferencePath<'_>,
        scope: Scope<'_>,
    ) -> Option<(NoticeClass, &'static str)> {
        use NoticeClass::{Defect, Runtime};
        if scope.constants_before.is_some() && !matches!(path, ReferencePath::Const(_)) {
            let is_ours =
                !matches!(path, ReferencePath::Item(_) | ReferencePath::StepResult { .. });
            return is_ours.then_some((Defect, "a constant can name constants before it alone"));
        }
        match path {
            ReferencePath::Const(name) => {
                match (self.constants.get(name), scope.constants_before) {
                    (None, _) => Some((Defect, "there is no such constant")),
                    (Some(at), Some(before)) if *at >= before => {
                        Some((Defect, "a constant can name constants before it alone"))
                    }
                    _ => None,
                }
            }
            ReferencePath::Params => {
                self.params.is_empty().then_some((Runtime, "the DAG has no parameters"))
            }
            ReferencePath::Param(name) => match self.params.get(name) {
                None => Some((Runtime, "there is no such parameter")),
                Some(false) => Some((Runtime, "the caller gives the parameter")),
                Some(true) => None,
            },
            ReferencePath::Env(name) => (!self.env.contains(*name))
                .then_some((Runtime, "the DAG does not declare the variable before this place")),
            ReferencePath::StepOutput { step, name } => scope
                .steps
                .map_or(Some("outputs of steps are not known here"), |steps| {
                    steps.missing(step, name)
                })
                .map(|reason| (Defect, reason)),
            ReferencePath::ForeachIndex | ReferencePath::ForeachKey => {
                scope.items.is_empty().then_some((Defect, "there is no `foreach` around it"))
            }
            ReferencePath::ForeachItem { name, .. } => (!scope.items.contains(name))
                .then_some((Defect, "no `foreach` around it has items of this name")),
            ReferencePath::Context(_) => Some((Runtime, "the run gives it")),
            ReferencePath::UnknownContext(_) => Some((Defect, "there is no such field")),
            ReferencePath::Item(_) | ReferencePath::StepResult { .. } => None,
        }
    }
}

impl StepScope<'_> {
    /// Why an output has no value here.
    fn missing(&self, id: &str, output: &str) -> Option<&'static str> {
        let Some(index) = self.ids.get(id).copied() else {
            let unknown = Some("no step that can be named here has this id");
            return self.outer.map_or(unknown, |outer| outer.missing(id, output));
        };
        if self.owner == Some(index) {
            return Some("a step cannot name its own output");
        }
        if !self.steps.get(index)?.step.is_some_and(|step| declares(step, output)) {
            return Some("the step declares no such output in `outputs`");
        }
        let follows = self.owner.is_none_or(|owner| self.order.follows(self.steps, owner, index));
        (!follows).then_some("the step does not follow that one: add it to `depends`")
    }
}

/// True if a step has an output of a name, or may have.
fn declares(step: &DagStep, output: &str) -> bool {
    let declared = step.outputs.iter().flatten().any(|declared| declared.name == output);
    if declared || step.output_schema.is_some() {
        return true;
    }
    let Some(action) = step.action.as_deref() else { return false };
    let with = step.settings.as_ref();
    match action {
        "human.task" => {
            with.and_then(|with| with.get("form")?.get("properties")?.get(output)).is_some()
        }
        // Whoever made the action or the tool knows.
        action if !action::is_builtin(action) => true,
        action => action::outputs_of(action).contains(&output),
    }
}
