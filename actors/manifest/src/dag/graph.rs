//! Steps at their places, and their order: the graph of their dependencies, with its cycles, by
//! depth-first search.

use std::collections::{BTreeSet, HashMap};

use super::{
    DagType,
    step::{DagGroupEntry, DagStep, DagStepEntry, DagSteps},
};
use crate::problems::{ManifestPath, ProblemList, at, not_there};

/// Steps of a cycle that a message names.
const MAX_NAMES: usize = 10;

/// Step with its place.
#[derive(Debug)]
pub(super) struct PlacedStep<'d> {
    pub(super) path: ManifestPath,
    /// Index of its entry in the list of steps; those of a group share one.
    level: usize,
    pub(super) name: Option<&'d str>,
    /// `None` for a bare command.
    pub(super) step: Option<&'d DagStep>,
}

impl<'d> PlacedStep<'d> {
    pub(super) fn id(&self) -> Option<&'d str> {
        self.step?.id.as_deref()
    }

    /// Name for messages.
    fn shown(&self) -> String {
        let name = self.name.or(self.id()).map(|name| name.chars().take(60).collect());
        name.map_or_else(|| self.path.to_string(), |name: String| format!("`{name}`"))
    }
}

/// Steps of a DAG with their places.
pub(super) fn placed(steps: &DagSteps) -> Vec<PlacedStep<'_>> {
    let mut placed = Vec::new();
    match steps {
        DagSteps::Map(by_name) => {
            for (level, (name, step)) in by_name.iter().enumerate() {
                let path = at!["steps", name];
                placed.push(PlacedStep { path, level, name: Some(name), step: Some(step) });
            }
        }
        DagSteps::List(entries) => {
            for (level, entry) in entries.iter().enumerate() {
                let path = at!["steps", level];
                match entry {
                    DagStepEntry::Command(_) => {
                        placed.push(PlacedStep { path, level, name: None, step: None });
                    }
                    DagStepEntry::Step(step) => placed.push(single(path, level, step)),
                    DagStepEntry::Group(group) => {
                        placed.extend(group.iter().enumerate().map(|(index, entry)| match entry {
                            DagGroupEntry::Step(step) => single(path.join(index), level, step),
                            DagGroupEntry::Command(_) => {
                                PlacedStep { path: path.join(index), level, name: None, step: None }
                            }
                        }));
                    }
                }
            }
        }
    }
    placed
}

fn single(path: ManifestPath, level: usize, step: &DagStep) -> PlacedStep<'_> {
    PlacedStep { path, level, name: step.name.as_deref(), step: Some(step) }
}

/// Steps that each step follows, by index.
#[derive(Debug, Default)]
struct DependencyGraph {
    follows: Vec<BTreeSet<usize>>,
}

impl DependencyGraph {
    /// Graph of the dependencies that the steps state. Reports those that do not exist.
    fn stated(steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) -> Self {
        let mut index = HashMap::new();
        for (at, placed) in steps.iter().enumerate() {
            for name in [placed.name, placed.id()].into_iter().flatten() {
                index.entry(name).or_insert(at);
            }
        }
        let known: Vec<_> = index.keys().copied().collect();
        let mut graph = Self { follows: vec![BTreeSet::new(); steps.len()] };
        for (at, placed) in steps.iter().enumerate() {
            let Some(step) = placed.step else { continue };
            for (number, name) in step.depends.iter().flat_map(|all| all.iter()).enumerate() {
                let path = placed.path.join("depends").join(number);
                match index.get(name) {
                    Some(other) => _ = graph.follows[at].insert(*other),
                    None => problems.add(&path, not_there("step", name, &known)),
                }
            }
            for (route, targets) in step.routes.iter().flatten() {
                let path = placed.path.join("routes").join(route);
                for name in targets.iter() {
                    match index.get(name) {
                        // A target of a router follows the router.
                        Some(other) => _ = graph.follows[*other].insert(at),
                        None => problems.add(&path, not_there("step", name, &known)),
                    }
                }
            }
        }
        graph
    }

    /// Graph of a chain: each entry of the list follows the one before.
    fn chain(steps: &[PlacedStep<'_>]) -> Self {
        let before = |step: &PlacedStep<'_>| {
            let level = step.level.checked_sub(1);
            steps
                .iter()
                .enumerate()
                .filter(|(_, one)| Some(one.level) == level)
                .map(|(at, _)| at)
                .collect()
        };
        Self { follows: steps.iter().map(before).collect() }
    }

    /// True if a step is the other one, or follows it directly or indirectly.
    fn leads_back(&self, from: usize, to: usize) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at) {
                open.extend(&self.follows[at]);
            }
        }
        false
    }

    /// Reports each cycle once.
    fn tell_cycles(&self, steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) {
        let mut done = vec![false; steps.len()];
        for start in 0..steps.len() {
            // Path from the start, with the steps still to try at each step.
            let mut way: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut on_way = BTreeSet::new();
            let mut next = Some(start).filter(|at| !done[*at]);
            loop {
                if let Some(at) = next.take() {
                    on_way.insert(at);
                    way.push((at, self.follows[at].iter().copied().collect()));
                }
                let Some((at, open)) = way.last_mut() else { break };
                match open.pop() {
                    Some(other) if on_way.contains(&other) => {
                        let from = way.iter().position(|(at, _)| *at == other).unwrap_or_default();
                        tell(way[from..].iter().map(|(at, _)| &steps[*at]), problems);
                    }
                    Some(other) if !done[other] => next = Some(other),
                    Some(_) => {}
                    None => {
                        done[*at] = true;
                        on_way.remove(at);
                        way.pop();
                    }
                }
            }
        }
    }
}

fn tell<'s>(cycle: impl Iterator<Item = &'s PlacedStep<'s>>, problems: &mut ProblemList<'_>) {
    let cycle: Vec<_> = cycle.collect();
    let mut names: Vec<_> = cycle.iter().take(MAX_NAMES).map(|step| step.shown()).collect();
    if cycle.len() > MAX_NAMES {
        names.push("…".to_owned());
    }
    names.push(cycle[0].shown());
    let message = match cycle.len() {
        1 => "a step cannot follow itself".to_owned(),
        _ => format!("the steps follow each other in a cycle: {}", names.join(" after ")),
    };
    problems.add_key(&cycle[0].path.join("depends"), message);
}

/// Checks what the steps follow: it exists, and no step follows itself.
pub(super) fn check_order(
    dag_type: DagType,
    steps: &[PlacedStep<'_>],
    problems: &mut ProblemList<'_>,
) {
    let graph = match dag_type {
        DagType::Graph => DependencyGraph::stated(steps, problems),
        DagType::Chain => {
            for placed in steps {
                let Some(step) = placed.step else { continue };
                if step.depends.is_some() {
                    let message = "a chain has its order already: set `type: graph` at the root, or remove it";
                    problems.add_key(&placed.path.join("depends"), message);
                }
                if step.step_type.as_deref() == Some("router") {
                    problems
                        .add(&placed.path.join("type"), "a router needs `type: graph` at the root");
                }
            }
            DependencyGraph::chain(steps)
        }
    };
    graph.tell_cycles(steps, problems);
    for (at, placed) in steps.iter().enumerate() {
        let approval = placed.step.and_then(|step| step.approval.as_ref());
        let Some(target) = approval.and_then(|approval| approval.rewind_to.as_deref()) else {
            continue;
        };
        let named = |one: &PlacedStep<'_>| one.name == Some(target) || one.id() == Some(target);
        let found = steps.iter().position(named);
        if !found.is_some_and(|found| graph.leads_back(at, found)) {
            let message = format!("`{target}` is neither this step nor one that it follows");
            problems.add(&placed.path.join("approval").join("rewind_to"), message);
        }
    }
}
