//! Dependency graph of the steps, with its cycles, by depth-first search.

use std::collections::{BTreeSet, HashMap};

use super::rules::PlacedStep;
use crate::misfit::nearest;
use crate::problems::ProblemList;

/// Steps of a cycle that a message names.
const MAX_NAMES: usize = 10;

/// Steps that each step follows, by index.
#[derive(Debug, Default)]
pub(super) struct DependencyGraph {
    follows: Vec<BTreeSet<usize>>,
}

impl DependencyGraph {
    /// Graph of the dependencies that the steps state. Reports those that do not exist.
    pub(super) fn stated(steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) -> Self {
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
                    None => problems.add(&path, no_step(name, &known)),
                }
            }
            for (route, targets) in step.routes.iter().flatten() {
                let path = placed.path.join("routes").join(route);
                for name in targets.iter() {
                    match index.get(name) {
                        // A target of a router follows the router.
                        Some(other) => _ = graph.follows[*other].insert(at),
                        None => problems.add(&path, no_step(name, &known)),
                    }
                }
            }
        }
        graph
    }

    /// Graph of a chain: each entry of the list follows the one before.
    pub(super) fn chain(steps: &[PlacedStep<'_>]) -> Self {
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
    pub(super) fn leads_back(&self, from: usize, to: usize) -> bool {
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
    pub(super) fn tell_cycles(&self, steps: &[PlacedStep<'_>], problems: &mut ProblemList<'_>) {
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

fn no_step(name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, known) {
        Some(near) => format!("there is no step `{shown}`: did you mean `{near}`?"),
        None => format!("there is no step `{shown}`"),
    }
}
