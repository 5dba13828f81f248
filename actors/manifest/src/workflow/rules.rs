//! Rules of a workflow that its schema cannot say.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ContainerVolume, OUTPUT_NAMES, ParallelConsensus, RESERVED_KEYS, SubworkflowMode, Transition,
    TransitionCondition, UPDATE_BLACKBOARD, WorkflowManifest, WorkflowState, texts, transition,
};
use crate::{
    common::{check_json_schema, check_unique},
    problems::{ManifestPath, ProblemList, at, not_there},
};

/// Sum of shares is 1 within this.
const SHARE_SLACK: f64 = 0.01;
/// Volume that is the workspace of the states.
const WORKSPACE_VOLUME: &str = "workspace";

/// Checks a workflow.
pub(crate) fn check(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    let (spec, metadata) = (&workflow.spec, &workflow.metadata);
    for (key, schema) in
        [("input_schema", &metadata.input_schema), ("output_schema", &metadata.output_schema)]
    {
        if let Some(schema) = schema {
            check_json_schema(schema, &at!["metadata", key], problems);
        }
    }
    let shared = spec.storage.as_ref().and_then(|storage| storage.shared_volumes.as_deref());
    let shared = shared.unwrap_or_default();
    let volumes = at!["spec", "storage", "shared_volumes"];
    check_unique(shared.iter().map(|volume| &volume.name), &volumes, problems);
    check_keys(workflow, problems);
    let names: Vec<_> = spec.states.keys().map(String::as_str).collect();
    if !spec.states.contains_key(&spec.initial_state) {
        let message = not_there("state", &spec.initial_state, &names);
        problems.add(&at!["spec", "initial_state"], message);
    }
    let shared: Vec<_> = shared.iter().map(|volume| volume.name.as_str()).collect();
    for (name, state) in &spec.states {
        let at = at!["spec", "states", name];
        transition::check_all(state.transitions(), &at.join("transitions"), &names, problems);
        check_state(state, &at, &shared, problems);
    }
    texts::check(workflow, problems);
    if problems.is_empty() {
        check_flow(&spec.initial_state, &spec.states, problems);
    }
}

/// Checks what a workflow has to keep beside [`check`] to be registered: its scores lead somewhere in any case.
pub(crate) fn check_registration(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    use TransitionCondition::{
        OnSuccess, ScoreAbove, ScoreAndConfidenceAbove, ScoreBelow, ScoreBetween,
    };
    for (name, state) in &workflow.spec.states {
        let conditions: Vec<_> = state.transitions().iter().map(|it| it.condition).collect();
        let scored = [ScoreAbove, ScoreBetween, ScoreAndConfidenceAbove, ScoreBelow];
        let is_scored = conditions.iter().any(|it| scored.contains(it));
        let at = at!["spec", "states", name, "transitions"];
        if is_scored && !conditions.contains(&ScoreBelow) {
            let message = "a low score leads nowhere: add a transition with `score_below`";
            problems.add_key(&at, message);
        }
        let success = conditions.iter().position(|it| *it == OnSuccess);
        if let Some(index) = success.filter(|_| is_scored) {
            let message = "a state goes on by its score or by its success: keep one of them";
            problems.add(&at.join(index).join("condition"), message);
        }
    }
}

/// Tells keys of the blackboard that mean something else.
fn check_keys(workflow: &WorkflowManifest, problems: &mut ProblemList<'_>) {
    let spec = &workflow.spec;
    let reserved = |key: &str| format!("`{key}` is a name of the run: choose another key");
    for key in spec.context.iter().flatten().map(|(key, _)| key) {
        let at = at!["spec", "context", key];
        if RESERVED_KEYS.contains(&key.as_str()) {
            problems.add_key(&at, reserved(key));
        } else if spec.states.contains_key(key) {
            problems.add_key(&at, "a state has the same name, and its output stands there");
        }
    }
    let workspace = spec.storage.as_ref().and_then(|storage| storage.workspace.as_ref());
    if let Some(key) = workspace.and_then(|workspace| workspace.blackboard_key.as_deref())
        && (RESERVED_KEYS.contains(&key) || spec.states.contains_key(key))
    {
        problems.add(&at!["spec", "storage", "workspace", "blackboard_key"], reserved(key));
    }
    for (name, state) in &spec.states {
        let at = at!["spec", "states", name];
        if RESERVED_KEYS.contains(&name.as_str()) || OUTPUT_NAMES.contains(&name.as_str()) {
            problems.add_key(&at, "is a name of the run: choose another name for the state");
        }
        let is_taken = |key: &str| RESERVED_KEYS.contains(&key) || spec.states.contains_key(key);
        match state {
            WorkflowState::Subworkflow { result_key: Some(key), .. } if is_taken(key) => {
                problems.add(&at.join("result_key"), reserved(key));
            }
            WorkflowState::System { command, env, .. } if command == UPDATE_BLACKBOARD => {
                for key in env.iter().flatten().map(|(key, _)| key).filter(|key| is_taken(key)) {
                    problems.add_key(&at.join("env").join(key), reserved(key));
                }
            }
            _ => {}
        }
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
            check_unique(steps.iter().map(|step| &step.name), &at.join("steps"), problems);
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
    if let Some(required) = consensus.min_judges_required.filter(|it| *it > agents as u64) {
        let message = format!("{required} of {agents} agents cannot answer");
        problems.add(&at.join("min_judges_required"), message);
    }
    if let Some(n) = consensus.n.filter(|n| *n > agents as u64) {
        problems.add(&at.join("n"), format!("{n} of {agents} agents cannot be chosen"));
    }
}

/// Volumes of containers are the workflow's: its workspace, and those that it declares.
fn check_volumes<'v>(
    volumes: impl Iterator<Item = &'v ContainerVolume>,
    at: &ManifestPath,
    shared: &[&str],
    problems: &mut ProblemList<'_>,
) {
    let mut paths = BTreeSet::new();
    for (index, volume) in volumes.enumerate() {
        let at = at.join("volumes").join(index);
        let name = volume.name.as_str();
        if name != WORKSPACE_VOLUME && !shared.contains(&name) {
            let known: Vec<_> = shared.iter().copied().chain([WORKSPACE_VOLUME]).collect();
            problems.add(&at.join("name"), not_there("shared volume", name, &known));
        }
        let path = volume.mount_path.trim_end_matches('/');
        if path.split('/').any(|part| part == "." || part == "..") {
            problems.add(&at.join("mount_path"), "may not have `.` or `..` in it");
        }
        if !paths.insert(path) {
            problems.add(&at.join("mount_path"), "another volume of the container is there");
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
