//! Steps at their places, and their order: the graph of their dependencies, with its cycles, by
//! depth-first search.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

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
    fn new(path: ManifestPath, level: usize, step: Option<&'d DagStep>) -> Self {
        Self { path, level, name: step.and_then(DagStep::name), step }
    }

    pub(super) fn id(&self) -> Option<&'d str> {
        self.step?.id()
    }

    /// Name for messages.
    fn shown(&self) -> String {
        let name = self.name.map(|name| name.chars().take(60).collect());
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
                    DagStepEntry::Command(_) => placed.push(PlacedStep::new(path, level, None)),
                    DagStepEntry::Step(step) => {
                        placed.push(PlacedStep::new(path, level, Some(step)));
                    }
                    DagStepEntry::Group(group) => {
                        placed.extend(group.iter().enumerate().map(|(index, entry)| {
                            let step = match entry {
                                DagGroupEntry::Step(step) => Some(&**step),
                                DagGroupEntry::Command(_) => None,
                            };
                            PlacedStep::new(path.join(index), level, step)
                        }));
                    }
                }
            }
        }
    }
    placed
}

/// Steps of the body of a `foreach` with their places.
pub(super) fn placed_body<'d>(steps: &'d [DagStep], at: &ManifestPath) -> Vec<PlacedStep<'d>> {
    let steps = steps.iter().enumerate();
    steps.map(|(level, step)| PlacedStep::new(at.join(level), level, Some(step))).collect()
}

/// Order of steps, by index.
#[derive(Debug)]
pub(super) enum StepOrder {
    /// Each level follows the one before.
    Chain,
    /// Steps that each step follows, directly or not, as bits by index; without those of a cycle.
    Graph(Vec<Vec<u64>>),
    /// Any step may follow any other.
    Free,
}

impl StepOrder {
    /// Order of steps. Reports what is wrong with it: steps that are not there, and cycles.
    pub(super) fn of(
        dag_type: DagType,
        steps: &[PlacedStep<'_>],
        problems: &mut ProblemList<'_>,
    ) -> Self {
        match dag_type {
            DagType::Graph | DagType::Build => {
                let graph = DependencyGraph::stated(steps, problems);
                Self::Graph(graph.closure(steps, problems))
            }
            DagType::Chain => {
                let message =
                    "a chain has its order already: set `type: graph` at the root, or remove it";
                without_order(steps, message, problems);
                Self::Chain
            }
            DagType::Agent | DagType::Controller => {
                without_order(steps, "the agent chooses the order: remove it", problems);
                Self::Free
            }
        }
    }

    /// True if a step follows the other one, directly or not.
    pub(super) fn follows(&self, steps: &[PlacedStep<'_>], at: usize, other: usize) -> bool {
        match self {
            Self::Chain => {
                let level = |index: usize| steps.get(index).map(|step| step.level);
                level(at) > level(other)
            }
            Self::Graph(rows) => rows.get(at).is_some_and(|row| has_bit(row, other)),
            Self::Free => true,
        }
    }
}

/// Reports dependencies and routers where there is no place for them.
fn without_order(steps: &[PlacedStep<'_>], message: &str, problems: &mut ProblemList<'_>) {
    for placed in steps {
        let Some(step) = placed.step else { continue };
        if step.depends.is_some() {
            problems.add_key(&placed.path.join("depends"), message);
        }
        if step.step_type.as_deref() == Some("router") {
            problems.add(&placed.path.join("type"), "a router needs `type: graph` at the root");
        }
        if step.action.as_deref() == Some("router.route") {
            problems.add(&placed.path.join("action"), "a router needs `type: graph` at the root");
        }
    }
}

/// Routes of a router with their place and their targets.
pub(super) fn routes<'d>(placed: &PlacedStep<'d>) -> Vec<(ManifestPath, Vec<&'d str>)> {
    let Some(step) = placed.step else { return Vec::new() };
    let old =
        step.routes.iter().flatten().map(|(route, targets)| {
            (placed.path.join("routes").join(route), targets.iter().collect())
        });
    let settings =
        step.settings.as_ref().filter(|_| step.action.as_deref() == Some("router.route"));
    let todays = settings.and_then(|with| with.get("routes")?.as_object());
    let todays = todays.into_iter().flatten().map(|(route, targets)| {
        let targets = match targets {
            Value::Array(targets) => targets.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        (placed.path.join("with").join("routes").join(route), targets)
    });
    old.chain(todays).collect()
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
            // A message looks at all names.
            if problems.is_full() {
                break;
            }
            let depends = placed.step.and_then(|step| step.depends.as_ref());
            let names = depends.map(|depends| depends.names()).unwrap_or_default();
            for (number, name) in names.iter().enumerate() {
                match index.get(name.as_str()) {
                    Some(other) => _ = graph.follows[at].insert(*other),
                    None if problems.is_full() => break,
                    None => {
                        let path = placed.path.join("depends").join(number);
                        problems.add(&path, not_there("step", name, &known));
                    }
                }
            }
            for (path, targets) in routes(placed) {
                for name in targets {
                    match index.get(name) {
                        // A target of a router follows the router.
                        Some(other) => _ = graph.follows[*other].insert(at),
                        None if problems.is_full() => break,
                        None => problems.add(&path, not_there("step", name, &known)),
                    }
                }
            }
        }
        graph
    }

    /// Steps that each step follows, directly or not. Reports each cycle once.
    fn closure(&self, steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) -> Vec<Vec<u64>> {
        let mut rows = vec![Vec::new(); steps.len()];
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
                        if !problems.is_full() {
                            let from = way.iter().position(|(at, _)| *at == other);
                            let cycle = way[from.unwrap_or_default()..].iter();
                            tell(cycle.map(|(at, _)| &steps[*at]), problems);
                        }
                    }
                    Some(other) if !done[other] => next = Some(other),
                    Some(_) => {}
                    None => {
                        let at = *at;
                        done[at] = true;
                        on_way.remove(&at);
                        way.pop();
                        rows[at] = union(&self.follows[at], &rows);
                    }
                }
            }
        }
        rows
    }
}

/// Bits of steps and of all that these follow.
fn union(steps: &BTreeSet<usize>, rows: &[Vec<u64>]) -> Vec<u64> {
    let mut bits = Vec::new();
    let mut put = |word: usize, with: u64| {
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= with;
    };
    for step in steps {
        put(step / 64, 1 << (step % 64));
        rows[*step].iter().enumerate().for_each(|(word, with)| put(word, *with));
    }
    bits
}

fn has_bit(bits: &[u64], index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
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

/// Checks that an approval which is rejected goes back to a step before it.
pub(super) fn check_rewinds(
    order: &StepOrder,
    steps: &[PlacedStep<'_>],
    problems: &mut ProblemList<'_>,
) {
    let names = steps.iter().enumerate().flat_map(|(at, placed)| {
        [placed.name, placed.id()].into_iter().flatten().map(move |name| (name, at))
    });
    let index: HashMap<_, _> = names.collect();
    for (at, placed) in steps.iter().enumerate() {
        let approval = placed.step.and_then(|step| step.approval.as_ref());
        let Some(target) = approval.and_then(|approval| approval.rewind_to.as_deref()) else {
            continue;
        };
        let found = index.get(target).copied();
        if !found.is_some_and(|found| found == at || order.follows(steps, at, found)) {
            let message = format!("`{target}` is neither this step nor one that it follows");
            problems.add(&placed.path.join("approval").join("rewind_to"), message);
        }
    }
}
