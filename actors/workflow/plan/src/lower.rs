//! Lowering: a checked DAG becomes a plan. What the two generations of the notation write in different ways is one
//! action with its settings from here on.

mod action;
mod agent;
mod custom;
mod names;
mod policy;

use std::collections::HashMap;

use hivekeep_manifest::{
    common::JsonObject,
    dag::{
        DagGroupEntry, DagHandlers, DagManifest, DagParallel, DagPreconditions, DagStep,
        DagStepEntry, DagSteps, DagType, OneOrMore,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{NodeIndex, NodeOrder, NodeRole, PlanBounds, PlanNode, RunPlan, RunPlanError};
pub use agent::{AGENT_STEP, ASK_STEP, DECIDE, most_decisions};
pub use custom::expand_actions;
use policy::Counts;

/// Nodes at a time where a DAG names no bound, and the most that it may name.
const MOST_ACTIVE: usize = 100;
/// Children at a time where a step names no bound.
const CHILDREN_AT_ONCE: usize = 10;

/// Work of a node that is a step of a DAG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepWork {
    /// Action, as the notation of today names it; `run` for lines of a shell, and `foreach`.
    pub action: String,
    /// Settings of the action.
    pub with: JsonObject,
    /// Lines of a shell, of a step that runs some.
    pub lines: Option<StepLines>,
    /// Routers that have to choose the step.
    pub routers: Vec<NodeIndex>,
    /// The step as it is written, with the DAG's defaults.
    pub step: Box<DagStep>,
}

/// Lines of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepLines {
    /// Lines that run in order until one fails.
    Commands(Vec<String>),
    /// Script, of the shell or of what its first line names.
    Script(String),
}

/// Why a DAG has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// A plan that cannot be followed.
    #[error("the plan is not sound: {0:?}")]
    Plan(RunPlanError),
    /// A step that nothing is named like.
    #[error("there is no step `{0}`")]
    Unknown(String),
    /// A number that is none once its references are resolved.
    #[error("`{0}` is not a whole number: write one, or a reference to one")]
    Count(String),
    /// A type of DAGs that has no order of its own.
    #[error("a DAG of the type `{0}` has no order of steps")]
    Unordered(&'static str),
    /// A step whose fields do not fit together.
    #[error("the step `{0}` does nothing: give it `run` or `action`")]
    Nothing(String),
}

/// Plan of a checked DAG. `count` resolves a text with references that a number is written as.
///
/// # Errors
/// Faults of the DAG, which the check of its text tells with their places.
pub fn lower_dag(
    dag: &DagManifest,
    count: &dyn Fn(&str) -> Option<String>,
) -> Result<RunPlan<StepWork>, LowerError> {
    let dag_type = match dag.order() {
        DagType::Build => return Err(LowerError::Unordered("build")),
        other => other,
    };
    let counts = Counts(count);
    let entries = entries(&dag.steps, dag.defaults.as_deref());
    let names = names::of(&entries);
    let mut nodes = Vec::with_capacity(entries.len());
    for (entry, name) in entries.iter().zip(&names) {
        nodes.push(node(&entry.step, name.clone(), NodeRole::Step, &counts)?);
    }
    let index = names::index(&names, &entries);
    let is_agent = dag_type == DagType::Agent;
    let mut follows = match dag_type {
        DagType::Graph | DagType::Agent => stated(&entries, &index)?,
        _ => chain(&entries),
    };
    routers(&mut nodes, &mut follows, &index)?;
    for (node, entry) in nodes.iter_mut().zip(&entries) {
        node.back_to = back_to(&entry.step, &node.name, &index)?;
    }
    if is_agent {
        agent::complete(&mut nodes);
    }
    for (role, step) in handlers(dag.handler_on.as_deref()) {
        let name = names::free(&format!("handler_on.{}", role.1), &names);
        nodes.push(node(step, name, role.0, &counts)?);
        follows.push(Vec::new());
    }
    let plan = RunPlan {
        name: dag.name.clone().unwrap_or_default(),
        order: match is_agent {
            true => agent::order(dag, &nodes),
            false => NodeOrder::Graph { follows },
        },
        nodes,
        bounds: bounds(dag),
        attempts: dag.retry_policy.as_ref().map(|it| policy::of_dag(it, &counts)).transpose()?,
        gated: dag.preconditions.as_ref().is_some_and(has_conditions),
    };
    plan.check().map_err(LowerError::Plan)?;
    Ok(plan)
}

/// Step with its place in the order of a chain.
pub(crate) struct StepEntry {
    /// Steps of one level run beside each other.
    level: usize,
    /// Name of a step that is written below its name.
    key: Option<String>,
    step: DagStep,
}

fn entries(steps: &DagSteps, defaults: Option<&DagStep>) -> Vec<StepEntry> {
    let command = |line: &String| DagStep {
        command: Some(OneOrMore::One(line.clone())),
        ..DagStep::default()
    };
    let mut entries = Vec::new();
    let mut push = |level, key, step| {
        entries.push(StepEntry { level, key, step: policy::with_defaults(step, defaults) });
    };
    match steps {
        DagSteps::Map(by_name) => {
            for (level, (name, step)) in by_name.iter().enumerate() {
                push(level, Some(name.clone()), step.clone());
            }
        }
        DagSteps::List(list) => {
            for (level, entry) in list.iter().enumerate() {
                match entry {
                    DagStepEntry::Command(line) => push(level, None, command(line)),
                    DagStepEntry::Step(step) => push(level, None, (**step).clone()),
                    DagStepEntry::Group(group) => {
                        for entry in group {
                            let step = match entry {
                                DagGroupEntry::Command(line) => command(line),
                                DagGroupEntry::Step(step) => (**step).clone(),
                            };
                            push(level, None, step);
                        }
                    }
                }
            }
        }
    }
    entries
}

/// Each level follows all of the one before.
fn chain(entries: &[StepEntry]) -> Vec<Vec<NodeIndex>> {
    let mut follows = Vec::with_capacity(entries.len());
    let (mut places, mut before) = ((0u16..).map(NodeIndex), Vec::new());
    for level in entries.chunk_by(|one, other| one.level == other.level) {
        let level: Vec<NodeIndex> = places.by_ref().take(level.len()).collect();
        follows.extend(level.iter().map(|_| before.clone()));
        before = level;
    }
    follows
}

fn stated(
    entries: &[StepEntry],
    index: &HashMap<String, NodeIndex>,
) -> Result<Vec<Vec<NodeIndex>>, LowerError> {
    let depends = |entry: &StepEntry| {
        let names = entry.step.depends.as_ref().map(|it| it.names()).unwrap_or_default();
        let mut found: Vec<_> =
            names.into_iter().map(|name| find(&name, index)).collect::<Result<_, _>>()?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    };
    entries.iter().map(depends).collect()
}

fn find(name: &str, index: &HashMap<String, NodeIndex>) -> Result<NodeIndex, LowerError> {
    index.get(name).copied().ok_or_else(|| LowerError::Unknown(name.to_owned()))
}

/// Has targets of routers follow them, and wait for being chosen.
fn routers(
    nodes: &mut [PlanNode<StepWork>],
    follows: &mut [Vec<NodeIndex>],
    index: &HashMap<String, NodeIndex>,
) -> Result<(), LowerError> {
    let mut chosen_by = Vec::new();
    for (node, at) in nodes.iter().zip(0u16..) {
        let routes =
            node.action.with.get("routes").filter(|_| node.action.action == "router.route");
        for targets in routes.and_then(Value::as_object).into_iter().flat_map(|it| it.values()) {
            let targets = match targets {
                Value::Array(targets) => targets.iter().filter_map(Value::as_str).collect(),
                one => one.as_str().into_iter().collect::<Vec<_>>(),
            };
            for target in targets {
                chosen_by.push((find(target, index)?, NodeIndex(at)));
            }
        }
    }
    chosen_by.sort_unstable();
    chosen_by.dedup();
    for (target, router) in chosen_by {
        if let (Some(node), Some(before)) =
            (nodes.get_mut(target.at()), follows.get_mut(target.at()))
        {
            node.action.routers.push(router);
            if !before.contains(&router) {
                before.push(router);
            }
        }
    }
    Ok(())
}

/// Node that a refused approval goes back to: the step itself where it names none.
fn back_to(
    step: &DagStep,
    name: &str,
    index: &HashMap<String, NodeIndex>,
) -> Result<Option<NodeIndex>, LowerError> {
    let Some(approval) = &step.approval else { return Ok(None) };
    find(approval.rewind_to.as_deref().unwrap_or(name), index).map(Some)
}

type Handler<'d> = ((NodeRole, &'static str), &'d DagStep);

fn handlers(all: Option<&DagHandlers>) -> Vec<Handler<'_>> {
    let Some(DagHandlers { init, success, failure, abort, wait, exit }) = all else {
        return Vec::new();
    };
    let all = [
        ((NodeRole::Init, "init"), init),
        ((NodeRole::Wait, "wait"), wait),
        ((NodeRole::Success, "success"), success),
        ((NodeRole::Failure, "failure"), failure),
        ((NodeRole::Abort, "abort"), abort),
        ((NodeRole::Exit, "exit"), exit),
    ];
    all.into_iter().filter_map(|(role, step)| Some((role, step.as_ref()?))).collect()
}

fn node(
    step: &DagStep,
    name: String,
    role: NodeRole,
    counts: &Counts<'_>,
) -> Result<PlanNode<StepWork>, LowerError> {
    let normal = action::of(step).ok_or_else(|| LowerError::Nothing(name.clone()))?;
    let is_person = normal.action == "human.task";
    let process = |wanted: bool| wanted && !is_person;
    let attempts = step.retry_policy.as_ref().filter(|_| process(true));
    let repeats = step.repeat_policy.as_ref().filter(|_| process(true));
    Ok(PlanNode {
        id: step.id().map(str::to_owned),
        failure: policy::failure(step.continue_on.as_ref()),
        attempts: attempts.map(|it| policy::of_step(it, counts)).transpose()?,
        repeats: repeats.map(|it| policy::repeats(it, counts)).transpose()?,
        children_at_once: children_at_once(step),
        back_to: None,
        action: normal,
        name,
        role,
    })
}

fn children_at_once(step: &DagStep) -> usize {
    let of_parallel = match &step.parallel {
        Some(DagParallel::Bounded(bounded)) => bounded.max_concurrent,
        _ => None,
    };
    let named = step.foreach.as_ref().and_then(|it| it.max_concurrent).or(of_parallel);
    named.and_then(|most| usize::try_from(most).ok()).unwrap_or(CHILDREN_AT_ONCE)
}

fn bounds(dag: &DagManifest) -> PlanBounds {
    let most = dag.max_active_steps.and_then(|most| usize::try_from(most).ok());
    let ms = |secs: Option<u64>| secs.unwrap_or_default().saturating_mul(1_000);
    PlanBounds {
        active_nodes: most.filter(|most| (1..MOST_ACTIVE).contains(most)).unwrap_or(MOST_ACTIVE),
        timeout_ms: Some(ms(dag.timeout_sec)).filter(|ms| *ms > 0),
        delay_ms: ms(dag.delay_sec),
    }
}

fn has_conditions(conditions: &DagPreconditions) -> bool {
    match conditions {
        DagPreconditions::Command(_) => true,
        DagPreconditions::More(list) => !list.is_empty(),
    }
}

#[cfg(test)]
mod tests;
