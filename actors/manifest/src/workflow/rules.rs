//! Rules of a workflow that its schema cannot say: each state is reached, and each cycle has a way out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ContainerVolume, ParallelConsensus, SubworkflowMode, Transition, WorkflowManifest,
    WorkflowState, transition::PARAMETERS,
};
use crate::agent::unique;
use crate::expressions;
use crate::misfit::nearest;
use crate::path::{ManifestPath, at};
use crate::problems::ProblemList;

/// Sum of shares is 1 within this.
const SHARE_SLACK: f64 = 0.01;

/// Checks a workflow.
pub(crate) fn check(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    let (spec, metadata) = (&workflow.spec, &workflow.metadata);
    for (key, schema) in
        [("input_schema", &metadata.input_schema), ("output_schema", &metadata.output_schema)]
    {
        if let Some(schema) = schema {
            expressions::json_schema(schema, &at!["metadata", key], problems);
        }
    }
    let shared = spec.storage.as_ref().and_then(|storage| storage.shared_volumes.as_deref());
    let shared = shared.unwrap_or_default();
    let volumes = at!["spec", "storage", "shared_volumes"];
    unique(shared.iter().map(|volume| &volume.name), &volumes, problems);
    let names: Vec<_> = spec.states.keys().map(String::as_str).collect();
    if !spec.states.contains_key(&spec.initial_state) {
        let message = no_state(&spec.initial_state, &names);
        problems.add(&at!["spec", "initial_state"], message);
    }
    let shared: Vec<_> = shared.iter().map(|volume| volume.name.as_str()).collect();
    for (name, state) in &spec.states {
        let at = at!["spec", "states", name];
        for (index, transition) in state.transitions().iter().enumerate() {
            let at = at.join("transitions").join(index);
            check_transition(transition, &at, &names, problems);
        }
        check_state(state, &at, &shared, problems);
    }
    if problems.is_empty() {
        check_flow(&spec.initial_state, &spec.states, problems);
    }
}

fn no_state(name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, known) {
        Some(near) => format!("there is no state `{shown}`: did you mean `{near}`?"),
        None => format!("there is no state `{shown}`"),
    }
}

fn check_transition(
    transition: &Transition,
    at: &ManifestPath,
    states: &[&str],
    problems: &mut ProblemList<'_>,
) {
    if !states.contains(&transition.target.as_str()) {
        problems.add(&at.join("target"), no_state(&transition.target, states));
    }
    let (needed, possible) = transition.condition.parameters();
    let given = [
        transition.value.is_some(),
        transition.threshold.is_some(),
        transition.min.is_some(),
        transition.max.is_some(),
        transition.agreement.is_some(),
        transition.score_threshold.is_some(),
        transition.confidence_threshold.is_some(),
        transition.expression.is_some(),
    ];
    for (name, given) in PARAMETERS.into_iter().zip(given) {
        if given && !needed.contains(&name) && !possible.contains(&name) {
            problems.add_key(&at.join(name), "says nothing about this condition");
        } else if !given && needed.contains(&name) {
            problems.add(&at.join("condition"), format!("this condition needs `{name}`"));
        }
    }
    if let (Some(min), Some(max)) = (transition.min, transition.max)
        && min.0 > max.0
    {
        problems.add(&at.join("max"), "has to be at least `min`");
    }
}

fn check_state(
    state: &WorkflowState,
    at: &ManifestPath,
    shared: &[&str],
    problems: &mut ProblemList<'_>,
) {
    match state {
        WorkflowState::Subworkflow { mode, result_key, .. } => {
            let blocking = *mode != Some(SubworkflowMode::FireAndForget);
            match (blocking, result_key) {
                (true, None) => {
                    problems.add(at, "the key `result_key` is missing: its end is waited for")
                }
                (false, Some(_)) => {
                    problems.add_key(
                        &at.join("result_key"),
                        "there is no result: its end is not waited for",
                    );
                }
                _ => {}
            }
        }
        WorkflowState::ParallelAgents { consensus, agents, .. } => {
            check_consensus(consensus, agents.len(), &at.join("consensus"), problems);
        }
        WorkflowState::ContainerRun { volumes, .. } => {
            check_volumes(volumes.iter().flatten(), at, shared, problems);
        }
        WorkflowState::ParallelContainerRun { steps, .. } => {
            unique(steps.iter().map(|step| &step.name), &at.join("steps"), problems);
            for (index, step) in steps.iter().enumerate() {
                let at = at.join("steps").join(index);
                check_volumes(step.volumes.iter().flatten(), &at, shared, problems);
            }
        }
        _ => {}
    }
}

fn check_consensus(
    consensus: &ParallelConsensus,
    agents: usize,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if let Some(weighting) = &consensus.confidence_weighting {
        let sum = weighting.agreement_factor.0 + weighting.self_confidence_factor.0;
        if (sum - 1.0).abs() > SHARE_SLACK {
            problems.add(
                &at.join("confidence_weighting"),
                format!("the shares add up to {sum}, not to 1"),
            );
        }
    }
    if let Some(n) = consensus.n.filter(|n| *n > agents as u64) {
        problems.add(&at.join("n"), format!("{n} of {agents} agents cannot be chosen"));
    }
}

/// Volumes of containers are the workflow's, where it declares any.
fn check_volumes<'v>(
    volumes: impl Iterator<Item = &'v ContainerVolume>,
    at: &ManifestPath,
    shared: &[&str],
    problems: &mut ProblemList<'_>,
) {
    for (index, volume) in volumes.enumerate() {
        if !shared.is_empty() && !shared.contains(&volume.name.as_str()) {
            let message = format!("no shared volume is named `{}`", volume.name);
            problems.add(&at.join("volumes").join(index).join("name"), message);
        }
    }
}

/// Tells states that are never entered, and those from which the workflow never ends. Bounded cycles
/// are legal.
fn check_flow(
    initial: &str,
    states: &BTreeMap<String, WorkflowState>,
    problems: &mut ProblemList<'_>,
) {
    let mut forward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut backward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, state) in states {
        let name = name.as_str();
        for Transition { target, .. } in state.transitions() {
            forward.entry(name).or_default().push(target);
            backward.entry(target).or_default().push(name);
        }
    }
    let entered = reached(vec![initial], &forward);
    let terminal = states.iter().filter(|(_, state)| state.transitions().is_empty());
    let ending = reached(terminal.map(|(name, _)| name.as_str()).collect(), &backward);
    for name in states.keys().map(String::as_str) {
        let at = at!["spec", "states", name];
        if !entered.contains(name) {
            problems.add_key(&at, "is never entered: no way leads to it from the initial state");
        } else if !ending.contains(name) {
            let message =
                "no way leads from it to a state without transitions: the workflow never ends";
            problems.add_key(&at, message);
        }
    }
}

fn reached<'s>(from: Vec<&'s str>, ways: &BTreeMap<&'s str, Vec<&'s str>>) -> BTreeSet<&'s str> {
    let (mut seen, mut open) = (BTreeSet::new(), from);
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(ways.get(name).into_iter().flatten());
        }
    }
    seen
}
