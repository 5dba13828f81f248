//! Random plans, driven by random outcomes, with the rules that no order of records may break.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::plan::{AttemptPolicy, ExitCodes, FailurePolicy, PlanBounds, PlanNode, RepeatBound};

/// Records of the longest run that still counts as one that ends.
const MOST_RECORDS: usize = 20_000;

fn node(name: String, role: NodeRole, rng: &mut Rng) -> PlanNode<()> {
    let attempts = rng.u8(..4) == 0;
    let codes = ExitCodes(if rng.bool() { vec![] } else { vec![1] });
    PlanNode {
        name,
        id: None,
        role,
        action: (),
        failure: FailurePolicy {
            failed: rng.u8(..4) == 0,
            skipped: rng.u8(..4) == 0,
            codes: ExitCodes(if rng.u8(..4) == 0 { vec![2] } else { vec![] }),
            counts_as_success: rng.bool(),
        },
        attempts: attempts.then(|| AttemptPolicy {
            limit: rng.u32(..3),
            interval_ms: rng.u64(..2_000),
            growth: 1.0 + rng.f64(),
            longest_ms: 5_000,
            codes,
        }),
        repeats: (rng.u8(..8) == 0).then(|| RepeatBound {
            rounds: Some(rng.u32(1..4)),
            interval_ms: rng.u64(..2_000),
            growth: 1.0,
            longest_ms: 5_000,
        }),
        children_at_once: rng.usize(1..4),
        back_to: None,
    }
}

/// Plan of a graph or of a machine, with some handlers.
fn random_plan(rng: &mut Rng) -> RunPlan<()> {
    let steps = rng.usize(1..12);
    let mut nodes: Vec<_> =
        (0..steps).map(|at| node(format!("s{at}"), NodeRole::Step, rng)).collect();
    for role in [
        NodeRole::Init,
        NodeRole::Wait,
        NodeRole::Success,
        NodeRole::Failure,
        NodeRole::Abort,
        NodeRole::Exit,
    ] {
        if rng.u8(..3) == 0 {
            nodes.push(node(format!("{role:?}"), role, rng));
        }
    }
    let machine = rng.u8(..3) == 0;
    let index = |at: usize| NodeIndex(at as u16);
    let order = match machine {
        true => NodeOrder::Machine {
            initial: index(rng.usize(..steps)),
            visits: nodes.iter().map(|_| rng.u32(1..5)).collect(),
            transitions: rng.u32(1..30),
        },
        false => NodeOrder::Graph {
            follows: (0..nodes.len())
                .map(|at| {
                    let before = (0..at.min(steps)).filter(|_| rng.u8(..3) == 0);
                    before.map(index).filter(|_| at < steps).collect()
                })
                .collect(),
        },
    };
    for (at, node) in nodes.iter_mut().enumerate().take(steps) {
        node.back_to = (!machine && rng.bool()).then(|| index(rng.usize(..=at)));
    }
    let bounds = PlanBounds {
        active_nodes: rng.usize(1..4),
        timeout_ms: (rng.u8(..6) == 0).then(|| rng.u64(1_000..20_000)),
        delay_ms: if rng.bool() { 0 } else { 1_000 },
    };
    let attempts = (rng.u8(..4) == 0).then(|| AttemptPolicy {
        limit: 2,
        interval_ms: 500,
        growth: 2.0,
        longest_ms: 5_000,
        codes: ExitCodes::default(),
    });
    RunPlan { name: "p".to_owned(), nodes, order, bounds, attempts, gated: rng.bool() }
}

/// World in which a run's steps happen.
struct World {
    rng: Rng,
    progress: RunProgress<()>,
    records: Vec<ProgressRecord>,
    now: DateTime<Utc>,
    retries: u32,
    /// Tries that were entered, with the number of times.
    entered: BTreeMap<NodeKey, u32>,
    /// Tries that have had children.
    expanded: BTreeSet<NodeKey>,
}

impl World {
    fn record(&mut self, record: ProgressRecord) {
        let before = self.progress.clone();
        self.now += TimeDelta::milliseconds(self.rng.i64(0..50));
        if self.rng.u8(..60) == 0 {
            // The clock is set back.
            self.now -= TimeDelta::hours(1);
        }
        self.progress.apply(&record).unwrap_or_else(|refused| panic!("{refused:?}\n{before:#?}"));
        if let ProgressRecord::Entered { key, .. } = &record {
            *self.entered.entry(*key).or_default() += 1;
            self.may_begin(&before, *key);
        }
        self.records.push(record);
        let active = self.progress.unfinished.iter().filter(|at| {
            let works = matches!(
                self.progress.nodes[at.at()].phase,
                NodePhase::Entered | NodePhase::Children(_)
            );
            works && self.progress.role(**at) == NodeRole::Step
        });
        assert!(active.count() <= self.progress.plan.bounds.active_nodes, "too many at a time");
    }

    /// A step begins only when everything before it has ended and lets it go on.
    fn may_begin(&self, before: &RunProgress<()>, key: NodeKey) {
        let NodeOrder::Graph { follows } = &before.plan.order else { return };
        assert!(!before.ends_early() || before.role(key.node) != NodeRole::Step);
        for earlier in &follows[key.node.at()] {
            let result = before.result(*earlier).expect("it has ended");
            assert!(result.goes_on, "{earlier:?} does not let {key:?} begin");
        }
    }

    fn end(&mut self) -> TryEnd {
        let rng = &mut self.rng;
        let outcome = match rng.u8(..10) {
            0..6 => NodeOutcome::Succeeded,
            6..8 => NodeOutcome::Failed,
            8 => NodeOutcome::Skipped,
            _ => NodeOutcome::Rejected,
        };
        let stops = self.progress.stopped().is_some();
        let outcome = if stops && rng.bool() { NodeOutcome::Aborted } else { outcome };
        let code = (outcome == NodeOutcome::Failed).then(|| rng.i32(1..4));
        TryEnd {
            outcome,
            exit_code: code,
            said: rng.u8(..8) == 0,
            again: rng.bool(),
            last: rng.u8(..8) == 0,
        }
    }

    fn step(&mut self, step: DueStep) {
        let at = self.now;
        let record = match step {
            DueStep::Gate => {
                let conditions = match self.rng.u8(..8) {
                    0 => Conditions::NotMet,
                    1 => Conditions::Failed,
                    _ => Conditions::Met,
                };
                ProgressRecord::Gated { conditions, at }
            }
            DueStep::Work(key) if self.progress.key(key.node) != key => {
                ProgressRecord::Entered { key, at }
            }
            DueStep::Work(key) => match self.rng.u8(..6) {
                0 if !self.progress.ends_early() => ProgressRecord::Waits { key, at },
                2 if !self.progress.ends_early() => {
                    let until = at + TimeDelta::milliseconds(self.rng.i64(1..9));
                    ProgressRecord::Delayed { key, until, at }
                }
                1 if self.expanded.insert(key) => {
                    ProgressRecord::Expanded { key, children: self.rng.u32(1..7), at }
                }
                _ => ProgressRecord::Ended { key, end: self.end(), at },
            },
            DueStep::Child(key, child) => ProgressRecord::ChildBegun { key, child, at },
            DueStep::Leave(key) => {
                let end = TryEnd {
                    outcome: NodeOutcome::Aborted,
                    exit_code: None,
                    said: false,
                    again: false,
                    last: true,
                };
                ProgressRecord::Ended { key, end, at }
            }
            DueStep::Move(node) => ProgressRecord::Moved { left: node, way: self.way(), at },
            DueStep::Finish => ProgressRecord::Over { at },
        };
        self.record(record);
    }

    fn way(&mut self) -> MachineMove {
        let NodeOrder::Machine { visits, transitions, .. } = self.progress.plan.order.clone()
        else {
            panic!("only a machine moves");
        };
        let steps = self.progress.plan.indexed().filter(|(_, it)| it.role == NodeRole::Step);
        let to = NodeIndex(self.rng.u16(..steps.count() as u16));
        let visited = self.progress.nodes[to.at()].visits;
        match self.rng.u8(..8) {
            0 => MachineMove::Completed,
            1 => MachineMove::Failed,
            _ if visited >= visits[to.at()] || self.progress.transitions >= transitions => {
                MachineMove::Failed
            }
            _ => MachineMove::Node { node: to },
        }
    }

    /// What comes from outside: children end, persons answer, time passes, somebody stops the run.
    fn outside(&mut self) -> bool {
        let at = self.now;
        let begun = self.progress.unfinished.iter().find_map(|node| {
            let NodePhase::Children(children) = &self.progress.nodes[node.at()].phase else {
                return None;
            };
            let child = children.iter().position(|it| *it == ChildPhase::Begun)?;
            Some((self.progress.key(*node), child as u32))
        });
        if let Some((key, child)) = begun {
            let succeeded = self.rng.bool();
            self.record(ProgressRecord::ChildEnded { key, child, succeeded, at });
            return true;
        }
        let waiting: Vec<NodeKey> = self.progress.waiting().collect();
        if let Some(key) = self.rng.choice(waiting) {
            let pushed = ProgressRecord::PushedBack { key, at };
            if self.rng.u8(..3) == 0 && self.progress.clone().apply(&pushed).is_ok() {
                self.record(pushed);
            } else {
                let end = self.end();
                self.record(ProgressRecord::Ended { key, end, at });
            }
            return true;
        }
        let Some(until) = self.progress.wakes_at() else { return false };
        self.now = self.now.max(until);
        self.record(ProgressRecord::Woken { at: self.now });
        true
    }

    fn run(&mut self) {
        while !self.progress.is_over() {
            assert!(self.records.len() < MOST_RECORDS, "it does not end");
            if self.rng.u8(..40) == 0 {
                let stopped = ProgressRecord::Stopped { reason: RunStop::Asked, at: self.now };
                // One that works on its last handlers is not stopped any more.
                let _refused = self.progress.apply(&stopped).map(|()| self.records.push(stopped));
            }
            self.garbage();
            let due = self.progress.due();
            let next = self.rng.choice(due);
            let happened = match next {
                Some(step) if self.rng.u8(..4) > 0 => {
                    self.step(step);
                    true
                }
                next => {
                    let outside = self.outside();
                    if !outside && let Some(step) = next {
                        self.step(step);
                    }
                    outside || next.is_some()
                }
            };
            assert!(happened, "nothing is due and nothing is waited for: {:#?}", self.progress);
        }
        assert!(self.progress.unfinished.is_empty() && self.progress.ready.is_empty());
        assert!(self.progress.due().is_empty() && self.progress.wakes_at().is_none());
        assert!(self.progress.outcome().is_some());
        if let NodeOrder::Graph { .. } = self.progress.plan.order {
            let steps = self.progress.plan.indexed().filter(|(_, it)| it.role == NodeRole::Step);
            assert!(steps.into_iter().all(|(at, _)| self.progress.result(at).is_some()));
        }
        assert!(self.entered.values().all(|times| *times == 1), "a try was entered twice");
    }

    /// A record that does not fit changes nothing.
    fn garbage(&mut self) {
        let at = self.now;
        let nodes = self.progress.nodes.len() as u16 + 1;
        let key = NodeKey { node: NodeIndex(self.rng.u16(..nodes)), tries: self.rng.u32(..3) };
        let record = match self.rng.u8(..7) {
            0 => ProgressRecord::Entered { key, at },
            1 => ProgressRecord::Delayed { key, until: at, at },
            2 => ProgressRecord::ChildEnded { key, child: 1, succeeded: true, at },
            3 => ProgressRecord::PushedBack { key, at },
            4 => ProgressRecord::Moved { left: key.node, way: MachineMove::Completed, at },
            5 => ProgressRecord::Retried { from: RetryFrom::Failed, at },
            _ => ProgressRecord::Over { at },
        };
        let mut tried = self.progress.clone();
        if tried.apply(&record).is_err() {
            assert_eq!(tried, self.progress, "{record:?}");
        }
    }

    fn replayed(&self) -> RunProgress<()> {
        let begun = RunProgress::begin(self.progress.plan.clone(), self.progress.began_at);
        begun.expect("it began before")
    }
}

/// Seed that is told if its run fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("HIVEKEEP_SEED={}", self.0);
        }
    }
}

#[test]
fn every_run_ends_by_the_rules_whatever_happens() {
    let seed = std::env::var("HIVEKEEP_SEED").ok().and_then(|seed| seed.parse().ok());
    let runs = if seed.is_some() { 1 } else { 3_000 };
    for _ in 0..runs {
        let seed = Seed(seed.unwrap_or_else(|| fastrand::u64(..)));
        let mut rng = Rng::with_seed(seed.0);
        let plan = Arc::new(random_plan(&mut rng));
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let progress = RunProgress::begin(plan, now).expect("a plan");
        let mut world = World {
            rng,
            progress,
            records: Vec::new(),
            now,
            retries: 0,
            entered: BTreeMap::new(),
            expanded: BTreeSet::new(),
        };
        let mut replayed = world.replayed();
        world.run();
        while world.retries < 3 && world.rng.bool() {
            world.retries += 1;
            let nodes = world.progress.nodes.len() as u16;
            let from = match world.rng.u8(..3) {
                0 => RetryFrom::Beginning,
                1 => RetryFrom::Failed,
                _ => RetryFrom::Node {
                    node: NodeIndex(world.rng.u16(..nodes)),
                    behind: world.rng.bool(),
                },
            };
            let record = ProgressRecord::Retried { from, at: world.now };
            if world.progress.clone().apply(&record).is_ok() {
                world.record(record);
                world.run();
            }
        }
        for record in &world.records {
            let written = serde_json::to_string(record).expect("it is written");
            let read = serde_json::from_str(&written).expect("it is read");
            replayed.apply(&read).expect("it fitted before");
        }
        assert_eq!(replayed, world.progress);
    }
}
