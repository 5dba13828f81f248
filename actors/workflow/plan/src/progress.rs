//! Progress of a run: what its records add up to, and what is due.
//!
//! ```text
//! delay ─▶ gate ─▶ init ─▶ steps ─┬─▶ handlers of the outcome ─▶ exit ─▶ finished ─▶ over
//!   ▲                 ▲      ▲    └─ failed, with an attempt left: a pause ─┐            │
//!   │                 │      └──────────────────────────────────────────────┘            │
//!   └─────────────────┴──────────────── retried, by a person ────────────────────────────┘
//!
//! node: open ─▶ entered ─┬─▶ ended
//!                  ▲     ├─▶ pauses before a further attempt or round ─▶ entered
//!                  │     ├─▶ waits for a person ─▶ ended, or everything from an earlier node on is open again
//!                  └─────┴─▶ has children, some at a time ─▶ entered, to collect what they left
//! ```
//! Records move it and nothing else does, so the same records always add up to the same; a record that does not fit
//! where it stands is refused. A try of a node has a number that no other try of it ever has, so what was begun for
//! it can be found under that.

mod due;
mod moves;
mod record;

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};

use crate::plan::{NodeIndex, NodeOrder, NodeRole, RunPlan, RunPlanError, successors};

pub use due::DueStep;
pub use record::{
    ChildPhase, Conditions, MachineMove, NodeKey, NodeOutcome, ProgressRecord, RetryFrom,
    RunOutcome, RunStop, TryEnd,
};

/// Where a node stands.
#[derive(Debug, Clone, PartialEq)]
pub enum NodePhase {
    /// Not begun.
    Open,
    /// A try is under way.
    Entered,
    /// Another try begins at this time.
    Pauses(DateTime<Utc>),
    /// A person is waited for.
    Waits,
    /// Children of the try are under way, each at its place.
    Children(Vec<ChildPhase>),
    /// Nothing of it goes on.
    Ended(NodeResult),
}

/// Result of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeResult {
    /// Outcome of its last try.
    pub outcome: NodeOutcome,
    /// Exit status of its last try.
    pub exit_code: Option<i32>,
    /// Whether the nodes behind it go on.
    pub goes_on: bool,
    /// True if it counts as a success whatever its outcome.
    pub counts_as_success: bool,
}

/// Node of a run, as far as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeProgress {
    /// Number of the last try; 0 before the first.
    pub tries: u32,
    /// Times that a machine has come to it.
    pub visits: u32,
    /// Where it stands.
    pub phase: NodePhase,
    /// Attempts of this round that failed.
    failed: u32,
    /// Rounds that ended.
    rounds: u32,
    /// Nodes before it that have not ended.
    waits_for: usize,
}

impl NodeProgress {
    /// True for the first try since the node was opened: no attempt has failed and no round has ended before it.
    pub fn is_first_try(&self) -> bool {
        self.failed == 0 && self.rounds == 0
    }
}

/// Part of a run that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Delay(DateTime<Utc>),
    Gate,
    Init,
    Steps,
    Pauses(DateTime<Utc>),
    Handlers,
    Finished,
    Over,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct RunProgress<A> {
    plan: Arc<RunPlan<A>>,
    behind: Arc<Vec<Vec<NodeIndex>>>,
    nodes: Vec<NodeProgress>,
    stage: Stage,
    began_at: DateTime<Utc>,
    /// Open nodes that may begin.
    ready: BTreeSet<NodeIndex>,
    /// Nodes that have begun and not ended.
    unfinished: BTreeSet<NodeIndex>,
    /// Node of a machine that has ended, from which it goes on.
    leaves: Option<NodeIndex>,
    /// Node that a machine came to last.
    current: Option<NodeIndex>,
    /// Ways of a machine that were taken.
    transitions: u32,
    /// True if a wait ended while the handler of waits was under way.
    rearms: bool,
    /// Attempts of the whole that failed.
    failed: u32,
    stopped: Option<RunStop>,
    /// True if the conditions of the whole could not be judged, its beginning failed, or a machine found no way.
    broken: bool,
    outcome: Option<RunOutcome>,
}

impl<A> RunProgress<A> {
    /// Begins a run.
    ///
    /// # Errors
    /// Faults of the plan.
    pub fn begin(plan: Arc<RunPlan<A>>, at: DateTime<Utc>) -> Result<Self, RunPlanError> {
        plan.check()?;
        let behind = match &plan.order {
            NodeOrder::Graph { follows } => successors(follows),
            NodeOrder::Machine { .. } => Vec::new(),
        };
        let open = NodeProgress {
            tries: 0,
            visits: 0,
            phase: NodePhase::Open,
            failed: 0,
            rounds: 0,
            waits_for: 0,
        };
        let mut progress = Self {
            nodes: vec![open; plan.nodes.len()],
            behind: Arc::new(behind),
            stage: Stage::Gate,
            began_at: at,
            ready: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            leaves: None,
            current: None,
            transitions: 0,
            rearms: false,
            failed: 0,
            stopped: None,
            broken: false,
            outcome: None,
            plan,
        };
        let delay_ms = progress.plan.bounds.delay_ms;
        progress.stage = match delay_ms {
            0 => Stage::Gate,
            _ => Stage::Delay(later(at, delay_ms)),
        };
        progress.advance(at);
        Ok(progress)
    }

    /// Plan of the run.
    pub fn plan(&self) -> &Arc<RunPlan<A>> {
        &self.plan
    }

    /// Node at a place.
    pub fn node(&self, at: NodeIndex) -> Option<&NodeProgress> {
        self.nodes.get(at.at())
    }

    /// Outcome, from the end of the steps on.
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.outcome
    }

    /// Why the run is stopped, if it is.
    pub fn stopped(&self) -> Option<RunStop> {
        self.stopped
    }

    /// True behind the last record, unless the run is retried.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Ways that a machine has taken.
    pub fn transitions(&self) -> u32 {
        self.transitions
    }

    /// Node that a machine came to last.
    pub fn current(&self) -> Option<NodeKey> {
        self.current.map(|at| self.key(at))
    }

    /// Nodes that wait for a person.
    pub fn waiting(&self) -> impl Iterator<Item = NodeKey> {
        let waits = |at: &NodeIndex| self.nodes[at.at()].phase == NodePhase::Waits;
        self.unfinished.iter().copied().filter(waits).map(|at| self.key(at))
    }

    /// Time at which something is due that is not due now.
    pub fn wakes_at(&self) -> Option<DateTime<Utc>> {
        let stage = match self.stage {
            Stage::Delay(until) | Stage::Pauses(until) => Some(until),
            _ => None,
        };
        let pauses = self.unfinished.iter().filter_map(|at| match self.nodes[at.at()].phase {
            NodePhase::Pauses(until) => Some(until),
            _ => None,
        });
        stage.into_iter().chain(self.ends_at()).chain(pauses).min()
    }

    /// Time of the end by force.
    fn ends_at(&self) -> Option<DateTime<Utc>> {
        let works = self.outcome.is_none() && self.stopped.is_none();
        let timeout = self.plan.bounds.timeout_ms.filter(|_| works)?;
        Some(later(self.began_at, timeout))
    }

    /// Key of the last try of a node.
    fn key(&self, node: NodeIndex) -> NodeKey {
        NodeKey { node, tries: self.nodes[node.at()].tries }
    }

    fn role(&self, node: NodeIndex) -> NodeRole {
        self.plan.node(node).map_or(NodeRole::Exit, |node| node.role)
    }

    /// Moves on from stage to stage as long as nothing is left of one.
    fn advance(&mut self, at: DateTime<Utc>) {
        loop {
            let next = match self.stage {
                Stage::Gate if self.ends_early() => Stage::Handlers,
                Stage::Gate if !self.plan.gated => Stage::Init,
                Stage::Init if self.ends_early() && self.unfinished.is_empty() => Stage::Handlers,
                Stage::Init => match self.plan.handler(NodeRole::Init).map(|at| self.result(at)) {
                    None => Stage::Steps,
                    Some(Some(result)) if result.outcome == NodeOutcome::Succeeded => Stage::Steps,
                    Some(Some(_)) => {
                        self.broken = true;
                        Stage::Handlers
                    }
                    Some(None) => return,
                },
                Stage::Steps if self.is_settled() => self.behind_steps(at),
                Stage::Handlers if self.next_handler().is_none() => Stage::Finished,
                _ => return,
            };
            self.stage = next;
            match next {
                Stage::Steps => self.look_for_ready(),
                Stage::Handlers => self.conclude(),
                _ => {}
            }
        }
    }

    /// Whether no step is to be begun any more.
    fn ends_early(&self) -> bool {
        self.stopped.is_some() || self.broken
    }

    fn is_settled(&self) -> bool {
        self.ready.is_empty() && self.unfinished.is_empty() && self.leaves.is_none()
    }

    fn behind_steps(&mut self, at: DateTime<Utc>) -> Stage {
        let failed = self.judged() == RunOutcome::Failed && !self.ends_early();
        let again = self.plan.attempts.as_ref().filter(|_| failed);
        match again.and_then(|policy| policy.pause_ms(self.failed + 1, None)) {
            Some(pause_ms) => {
                self.failed += 1;
                Stage::Pauses(later(at, pause_ms))
            }
            None => Stage::Handlers,
        }
    }

    /// Ends what was not begun, and says what the run has come to.
    fn conclude(&mut self) {
        let open = |(at, node): &(NodeIndex, &NodeProgress)| {
            node.phase == NodePhase::Open && self.role(*at) <= NodeRole::Wait
        };
        let nodes = (0u16..).map(NodeIndex).zip(&self.nodes);
        let open: Vec<NodeIndex> = match self.ends_early() {
            true => nodes.filter(open).map(|(at, _)| at).collect(),
            false => Vec::new(),
        };
        open.into_iter().for_each(|at| self.put_end(at, NodeOutcome::Aborted));
        self.ready.clear();
        self.outcome = Some(self.judged());
    }

    /// Outcome by what has become of the steps.
    fn judged(&self) -> RunOutcome {
        let results = self.plan.indexed().filter(|(_, node)| node.role == NodeRole::Step);
        let results: Vec<&NodeResult> = results.filter_map(|(at, _)| self.result(at)).collect();
        let is = |outcome| results.iter().any(|it| it.outcome == outcome && !it.goes_on);
        match self.stopped {
            Some(RunStop::Timeout) => return RunOutcome::Failed,
            Some(_) => return RunOutcome::Aborted,
            None => {}
        }
        let machine = matches!(self.plan.order, NodeOrder::Machine { .. });
        match () {
            () if self.broken => RunOutcome::Failed,
            // A machine's way says what a node that failed comes to.
            () if !machine && is(NodeOutcome::Rejected) => RunOutcome::Rejected,
            () if !machine && (is(NodeOutcome::Failed) || is(NodeOutcome::Aborted)) => {
                RunOutcome::Failed
            }
            () => {
                let partly = |it: &&&NodeResult| {
                    it.outcome == NodeOutcome::Failed && it.goes_on && !it.counts_as_success
                };
                match results.iter().any(|it| partly(&it)) {
                    true => RunOutcome::PartlySucceeded,
                    false => RunOutcome::Succeeded,
                }
            }
        }
    }

    fn result(&self, at: NodeIndex) -> Option<&NodeResult> {
        match &self.nodes[at.at()].phase {
            NodePhase::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// Handler whose turn it is.
    fn next_handler(&self) -> Option<NodeIndex> {
        let by_outcome = match self.outcome? {
            RunOutcome::Succeeded | RunOutcome::PartlySucceeded => NodeRole::Success,
            RunOutcome::Failed | RunOutcome::Rejected => NodeRole::Failure,
            RunOutcome::Aborted => NodeRole::Abort,
        };
        let handlers = [by_outcome, NodeRole::Exit].into_iter();
        handlers.filter_map(|role| self.plan.handler(role)).find(|at| self.result(*at).is_none())
    }

    /// Finds the nodes that may begin, from what has ended.
    fn look_for_ready(&mut self) {
        self.ready.clear();
        let plan = self.plan.clone();
        match &plan.order {
            NodeOrder::Machine { initial, .. } => self.visit(*initial),
            NodeOrder::Graph { follows } => {
                for (at, before) in (0u16..).map(NodeIndex).zip(follows) {
                    let open = before.iter().filter(|at| self.result(**at).is_none()).count();
                    self.nodes[at.at()].waits_for = open;
                }
                for (at, before) in (0u16..).map(NodeIndex).zip(follows) {
                    let is_open = self.nodes[at.at()].phase == NodePhase::Open;
                    if !is_open || self.role(at) != NodeRole::Step {
                        continue;
                    }
                    let stops =
                        before.iter().filter_map(|at| self.result(*at)).find(|it| !it.goes_on);
                    match stops.map(|it| it.outcome) {
                        Some(NodeOutcome::Skipped) => self.put_end(at, NodeOutcome::Skipped),
                        Some(_) => self.put_end(at, NodeOutcome::Aborted),
                        None if self.nodes[at.at()].waits_for == 0 => {
                            self.ready.insert(at);
                        }
                        None => {}
                    }
                }
            }
        }
    }

    /// Has a machine come to a node.
    fn visit(&mut self, at: NodeIndex) {
        self.nodes[at.at()].visits += 1;
        self.current = Some(at);
        self.ready.insert(at);
    }

    /// Ends a node that does nothing, and with it those behind it that cannot begin.
    fn put_end(&mut self, at: NodeIndex, outcome: NodeOutcome) {
        self.settle(at, self.without_try(at, outcome));
    }

    /// Result of a node that is left out, or aborted before it began.
    fn without_try(&self, at: NodeIndex, outcome: NodeOutcome) -> NodeResult {
        let skipped = outcome == NodeOutcome::Skipped;
        let goes_on = skipped && self.plan.node(at).is_some_and(|node| node.failure.skipped);
        NodeResult { outcome, exit_code: None, goes_on, counts_as_success: goes_on }
    }

    /// Ends a node. What follows it is looked at without recursion: a chain may have 10,000 nodes.
    fn settle(&mut self, at: NodeIndex, result: NodeResult) {
        let mut ended = vec![(at, result)];
        while let Some((at, result)) = ended.pop() {
            self.ready.remove(&at);
            self.unfinished.remove(&at);
            let (goes_on, outcome) = (result.goes_on, result.outcome);
            self.nodes[at.at()].phase = NodePhase::Ended(result);
            if self.role(at) != NodeRole::Step {
                continue;
            }
            if matches!(self.plan.order, NodeOrder::Machine { .. }) {
                let leaves = self.stage == Stage::Steps && !self.ends_early();
                self.leaves = leaves.then_some(at);
                continue;
            }
            let (behind, stops) = (self.behind.clone(), self.ends_early());
            for next in &behind[at.at()] {
                let node = &mut self.nodes[next.at()];
                node.waits_for = node.waits_for.saturating_sub(1);
                if node.phase != NodePhase::Open {
                    continue;
                }
                if goes_on && !stops {
                    if node.waits_for == 0 && self.stage == Stage::Steps {
                        self.ready.insert(*next);
                    }
                    continue;
                }
                let skipped = outcome == NodeOutcome::Skipped && !stops;
                let outcome = if skipped { NodeOutcome::Skipped } else { NodeOutcome::Aborted };
                ended.push((*next, self.without_try(*next, outcome)));
            }
        }
    }
}

/// Time so much later; the last one that there is where there is none.
fn later(at: DateTime<Utc>, ms: u64) -> DateTime<Utc> {
    let ms = i64::try_from(ms).ok().and_then(TimeDelta::try_milliseconds);
    ms.and_then(|ms| at.checked_add_signed(ms)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests;
