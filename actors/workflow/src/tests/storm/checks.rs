//! Rules that the records of a run keep, whatever died meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use hivekeep_kernel::RunId;
use hivekeep_plan::progress::{NodeKey, NodeOutcome, ProgressRecord, TryEnd};
use hivekeep_runtime::runs::RunState as _;
use serde_json::{Value, json};

use super::{
    super::{ALL, Stage},
    graphs::{RandomGraph, StepKind},
};
use crate::run::{RunFold, RunRecord};

/// Run that is over, by its records.
pub(in crate::tests) struct EndedRun {
    pub(in crate::tests) state: RunFold,
    entered: BTreeSet<NodeKey>,
    /// Tries that waited for a time.
    delayed: BTreeSet<NodeKey>,
    ended: BTreeMap<NodeKey, TryEnd>,
    /// Runs that its steps have begun, also those of steps that were done again.
    pub(in crate::tests) children: BTreeSet<RunId>,
    /// Times that it was begun or retried.
    passes: usize,
}

impl EndedRun {
    /// Reads a run that is over. Each try is entered once and left once, a time comes once and not early, and the
    /// records add up to what is answered.
    pub(in crate::tests) async fn read(stage: &Stage, id: RunId) -> Self {
        let (runs, name) = (stage.runs(), id.to_string());
        runs.0.settled(ALL, &name).await.expect("it is there");
        let (view, records) = runs.told(ALL, &name).await.expect("they are read");
        let mut rested = view.state.clone();
        rested.rest();
        let mut answered = runs.0.get(ALL, &name).expect("it is there").state;
        answered.rest();
        assert_eq!(rested, answered, "{id}: its records add up to what is answered");

        let mut read = Self {
            state: view.state,
            entered: BTreeSet::new(),
            delayed: BTreeSet::new(),
            ended: BTreeMap::new(),
            children: BTreeSet::new(),
            passes: 1,
        };
        let (mut back, mut until) = (BTreeSet::new(), BTreeMap::new());
        for record in &records {
            let RunRecord::Moved { progress, left, .. } = record else { continue };
            let left = left.iter().flat_map(|left| &left.children);
            read.children.extend(left.map(|child| child.id));
            match progress {
                ProgressRecord::Retried { .. } => read.passes += 1,
                ProgressRecord::Entered { key, at } => {
                    assert!(read.entered.insert(*key), "{id}: {key:?} is entered twice");
                    let early = until.remove(&key.node).is_some_and(|until| *at < until);
                    assert!(!early, "{id}: {key:?} begins before its time");
                }
                ProgressRecord::Delayed { key, until: time, .. } => {
                    assert!(read.delayed.insert(*key), "{id}: {key:?} waits twice");
                    until.insert(key.node, *time);
                }
                ProgressRecord::PushedBack { key, .. } => drop(back.insert(*key)),
                ProgressRecord::Ended { key, end, .. } => {
                    let before = read.ended.insert(*key, end.clone());
                    assert_eq!(before, None, "{id}: {key:?} ends twice");
                }
                _ => {}
            }
        }
        let delayed = read.delayed.iter().chain(&back).copied();
        let left: BTreeSet<_> = read.ended.keys().copied().chain(delayed).collect();
        let lost: Vec<_> = read.entered.difference(&left).collect();
        assert_eq!(lost, Vec::<&NodeKey>::new(), "{id}: entered and never left: {records:#?}");
        read
    }

    /// Tries of a step that ended, by its id.
    pub(in crate::tests) fn ends(&self, step: &str) -> Vec<(NodeKey, &TryEnd)> {
        let plan = self.state.work().map(|work| work.progress.plan().clone());
        let is_meant = |key: &NodeKey| {
            let node = plan.as_ref().and_then(|plan| plan.node(key.node));
            node.is_some_and(|node| node.id.as_deref() == Some(step))
        };
        self.ended.iter().filter(|(key, _)| is_meant(key)).map(|(key, end)| (*key, end)).collect()
    }
}

/// Tasks of steps that were started, each once; those of conditions and beginnings are left out.
fn commands(stage: &Stage) -> BTreeMap<String, usize> {
    let (mut seen, mut commands) = (BTreeSet::new(), BTreeMap::new());
    for id in stage.guest.started() {
        assert!(seen.insert(id.clone()), "{id} is run twice");
        let (run, name) = id.split_once('/').expect("a run's");
        if name.split('.').all(|part| part.parse::<u32>().is_ok()) {
            *commands.entry(run.to_owned()).or_default() += 1;
        }
    }
    commands
}

/// Checks the run of a graph and those of its children.
pub(super) async fn check_graph(stage: &Stage, graph: &RandomGraph, id: RunId, stopped: bool) {
    let run = EndedRun::read(stage, id).await;
    let commands = commands(stage);
    let mut started = commands.get(&id.to_string()).copied().unwrap_or(0);
    for &child in &run.children {
        // A child that was decided on and whose parent was stopped is never begun.
        if stopped && stage.runs().outcome(ALL, child).is_err() {
            continue;
        }
        EndedRun::read(stage, child).await;
        started += commands.get(&child.to_string()).copied().unwrap_or(0);
    }
    let done = stage.file(&graph.file).unwrap_or_default();
    let count = |line: &str| done.lines().filter(|it| *it == line).count();
    let effects = done.lines().count();
    // A command that a stop ends may have had its effect or not.
    let fits = if stopped { effects <= started } else { effects == started };
    assert!(fits, "{id}: {effects} effects of {started} commands: {done}");
    let called = stage.guest.called();
    for (name, kind) in &graph.steps {
        let ends = run.ends(name);
        let succeeded =
            ends.iter().filter(|(_, end)| end.outcome == NodeOutcome::Succeeded).count();
        match kind {
            StepKind::Command => {
                let ran = ends.iter().filter(|(_, end)| end.exit_code.is_some()).count();
                assert!(stopped || count(name) == ran, "{id}: {name} {ran} times: {done}");
            }
            StepKind::Items(items) => {
                let is_once = |item: &String| (1..=run.passes).contains(&count(item));
                assert!(succeeded == 0 || items.iter().all(is_once), "{id}: {items:?}: {done}");
                for (key, end) in &ends {
                    if end.outcome == NodeOutcome::Succeeded {
                        let left = &run.state.left[&key.node];
                        let outputs = &left.output.as_ref().expect("it has one")["outputs"];
                        let wanted = items.iter().map(|item| json!({ "v": item }));
                        assert_eq!(outputs, &wanted.collect::<Value>(), "{id}: in their order");
                    }
                }
            }
            StepKind::Wait => {
                let waited = run.delayed.iter().filter(|key| {
                    let plan = run.state.work().map(|work| work.progress.plan());
                    let node = plan.and_then(|plan| plan.node(key.node));
                    node.is_some_and(|node| node.id.as_deref() == Some(name))
                });
                assert!(succeeded <= waited.count(), "{id}: {name} did not wait");
                assert!(succeeded <= run.passes, "{id}: a time comes once");
            }
            StepKind::Question => {
                assert!(ends.len() <= run.passes, "{id}: {name} is answered once");
            }
            StepKind::Call { idempotent } => {
                let own = json!(format!("{}-{name}", graph.file));
                let times = called.iter().filter(|(_, args)| args["n"] == own).count();
                assert!(succeeded <= times, "{id}: {name} was not called");
                assert!(*idempotent || times <= ends.len(), "{id}: {name} is called {times} times");
                let lost = ends.iter().any(|(_, end)| end.outcome == NodeOutcome::Failed);
                assert!(!(*idempotent && lost), "{id}: {name} could have been called again");
            }
        }
    }
}
