//! Moves of a run's progress, one for each record.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::{
    ChildPhase, Conditions, MachineMove, NodeKey, NodeOutcome, NodePhase, NodeResult,
    ProgressRecord, RetryFrom, RunProgress, RunStop, Stage, TryEnd, later,
};
use crate::plan::{MAX_NODES, NodeIndex, NodeOrder, NodeRole};

/// Refusal of a record that does not fit where a run stands.
type Fits = Option<()>;

impl<A> RunProgress<A> {
    /// Moves on by a record.
    ///
    /// # Errors
    /// The record, where it does not fit; nothing was moved then.
    pub fn apply(&mut self, record: &ProgressRecord) -> Result<(), ProgressRecord> {
        let at = record.at();
        self.take(record, at).ok_or_else(|| record.clone())?;
        self.advance(at);
        Ok(())
    }

    fn take(&mut self, record: &ProgressRecord, at: DateTime<Utc>) -> Fits {
        match record {
            ProgressRecord::Gated { conditions, .. } => self.gated(*conditions),
            ProgressRecord::Entered { key, .. } => self.entered(*key),
            ProgressRecord::Ended { key, end, .. } => self.ended(*key, end, at),
            ProgressRecord::Waits { key, .. } => {
                self.phase(*key, &NodePhase::Entered)?;
                self.nodes[key.node.at()].phase = NodePhase::Waits;
                Some(())
            }
            ProgressRecord::Delayed { key, until, .. } => {
                self.phase(*key, &NodePhase::Entered)?;
                // A step of a run that is stopped ends; a handler works on.
                let is_step = matches!(self.role(key.node), NodeRole::Step | NodeRole::Init);
                (!is_step || !self.ends_early()).then_some(())?;
                self.nodes[key.node.at()].phase = NodePhase::Pauses(*until);
                Some(())
            }
            ProgressRecord::PushedBack { key, .. } => self.pushed_back(*key),
            ProgressRecord::Expanded { key, children, .. } => self.expanded(*key, *children),
            ProgressRecord::ChildBegun { key, child, .. } => {
                self.child(*key, *child, ChildPhase::Open, ChildPhase::Begun)
            }
            ProgressRecord::ChildEnded { key, child, succeeded, .. } => {
                let phase = if *succeeded { ChildPhase::Succeeded } else { ChildPhase::Failed };
                self.child(*key, *child, ChildPhase::Begun, phase)
            }
            ProgressRecord::Moved { left, way, .. } => self.moved(*left, *way),
            ProgressRecord::Stopped { reason, .. } => self.stop(*reason),
            ProgressRecord::Woken { .. } => self.woken(at),
            ProgressRecord::Retried { from, .. } => self.retried(*from, at),
            ProgressRecord::Over { .. } => {
                (self.stage == Stage::Finished).then(|| self.stage = Stage::Over)
            }
        }
    }

    fn gated(&mut self, conditions: Conditions) -> Fits {
        (self.stage == Stage::Gate).then_some(())?;
        match conditions {
            Conditions::Met => self.stage = Stage::Init,
            Conditions::NotMet => self.stopped = Some(RunStop::Conditions),
            Conditions::Failed => self.broken = true,
        }
        Some(())
    }

    fn entered(&mut self, key: NodeKey) -> Fits {
        let due = self.due().contains(&super::DueStep::Work(key));
        let node = self.nodes.get_mut(key.node.at())?;
        let fits = due && node.phase == NodePhase::Open && key.tries == node.tries + 1;
        fits.then_some(())?;
        node.tries = key.tries;
        node.phase = NodePhase::Entered;
        self.ready.remove(&key.node);
        self.unfinished.insert(key.node);
        Some(())
    }

    /// Whether the last try of a node has this key and stands so.
    fn phase(&self, key: NodeKey, phase: &NodePhase) -> Fits {
        let node = self.nodes.get(key.node.at())?;
        (node.tries == key.tries && node.phase == *phase).then_some(())
    }

    fn ended(&mut self, key: NodeKey, end: &TryEnd, at: DateTime<Utc>) -> Fits {
        let node = self.nodes.get(key.node.at()).filter(|node| node.tries == key.tries)?;
        let waits = match node.phase {
            NodePhase::Entered => false,
            NodePhase::Waits | NodePhase::Children(_) => true,
            _ => return None,
        };
        let plan = self.plan.clone();
        let planned = plan.node(key.node)?;
        let (failed, stops) = (end.outcome == NodeOutcome::Failed, self.ends_early());
        let node = &mut self.nodes[key.node.at()];
        let pause_ms = if stops {
            None
        } else if failed {
            node.failed += 1;
            let policy = planned.attempts.as_ref().filter(|_| !end.last);
            policy.and_then(|policy| policy.pause_ms(node.failed, end.exit_code))
        } else if end.outcome == NodeOutcome::Succeeded && end.again {
            (node.failed, node.rounds) = (0, node.rounds + 1);
            planned.repeats.as_ref().and_then(|bound| bound.pause_ms(node.rounds))
        } else {
            None
        };
        if let Some(pause_ms) = pause_ms {
            node.phase = NodePhase::Pauses(later(at, pause_ms));
            return Some(());
        }
        let (policy, code) = (&planned.failure, end.exit_code);
        let goes_on = match end.outcome {
            NodeOutcome::Succeeded => true,
            NodeOutcome::Failed => policy.goes_on(code, end.said),
            NodeOutcome::Skipped => policy.skipped,
            NodeOutcome::Aborted | NodeOutcome::Rejected => false,
        };
        let counts_as_success = goes_on && policy.counts_as_success;
        let (outcome, exit_code) = (end.outcome, code);
        self.settle(key.node, NodeResult { outcome, exit_code, goes_on, counts_as_success });
        if waits {
            self.rearm();
        }
        if planned.role == NodeRole::Wait && std::mem::take(&mut self.rearms) {
            self.open(key.node);
        }
        Some(())
    }

    /// Has the handler of waits run again at the next one.
    fn rearm(&mut self) {
        let Some(handler) = self.plan.handler(NodeRole::Wait) else { return };
        match self.nodes[handler.at()].phase {
            NodePhase::Open => {}
            NodePhase::Ended(_) => self.open(handler),
            _ => self.rearms = true,
        }
    }

    fn open(&mut self, at: NodeIndex) {
        let node = &mut self.nodes[at.at()];
        (node.phase, node.failed, node.rounds) = (NodePhase::Open, 0, 0);
    }

    fn expanded(&mut self, key: NodeKey, children: u32) -> Fits {
        self.phase(key, &NodePhase::Entered)?;
        let children = usize::try_from(children).ok().filter(|count| *count <= MAX_NODES)?;
        if children > 0 {
            self.nodes[key.node.at()].phase = NodePhase::Children(vec![ChildPhase::Open; children]);
        }
        Some(())
    }

    fn child(&mut self, key: NodeKey, child: u32, from: ChildPhase, to: ChildPhase) -> Fits {
        let node = self.nodes.get_mut(key.node.at()).filter(|node| node.tries == key.tries)?;
        let NodePhase::Children(children) = &mut node.phase else { return None };
        let phase = children.get_mut(child as usize).filter(|phase| **phase == from)?;
        *phase = to;
        let over = |it: &ChildPhase| matches!(it, ChildPhase::Succeeded | ChildPhase::Failed);
        if children.iter().all(over) {
            node.phase = NodePhase::Entered;
        }
        Some(())
    }

    fn moved(&mut self, from: NodeIndex, way: MachineMove) -> Fits {
        (self.leaves == Some(from)).then_some(())?;
        let NodeOrder::Machine { visits, transitions, .. } = &self.plan.order else { return None };
        match way {
            MachineMove::Completed => {}
            MachineMove::Failed => self.broken = true,
            MachineMove::Node { node } => {
                let most = *visits.get(node.at())?;
                let visited = self.nodes.get(node.at())?.visits;
                (visited < most && self.transitions < *transitions).then_some(())?;
                self.open(node);
                self.transitions += 1;
                self.visit(node);
            }
        }
        self.leaves = None;
        Some(())
    }

    fn stop(&mut self, reason: RunStop) -> Fits {
        let works = self.outcome.is_none() && self.stopped.is_none();
        works.then_some(())?;
        (self.stopped, self.leaves) = (Some(reason), None);
        if let Stage::Delay(_) | Stage::Pauses(_) | Stage::Init = self.stage {
            self.stage = if self.unfinished.is_empty() { Stage::Gate } else { self.stage };
        }
        let rests = |at: &NodeIndex| matches!(self.nodes[at.at()].phase, NodePhase::Pauses(_));
        let resting: Vec<_> = self.unfinished.iter().copied().filter(rests).collect();
        let resting = resting.into_iter().chain(std::mem::take(&mut self.ready));
        resting
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|at| self.put_end(at, NodeOutcome::Aborted));
        Some(())
    }

    fn woken(&mut self, at: DateTime<Utc>) -> Fits {
        if self.ends_at().is_some_and(|end| end <= at) {
            return self.stop(RunStop::Timeout);
        }
        match self.stage {
            Stage::Delay(until) if until <= at => self.stage = Stage::Gate,
            Stage::Pauses(until) if until <= at => {
                let cleared = self.not_well();
                self.clear(cleared);
            }
            _ => {}
        }
        let is_due = |node: &&NodeIndex| match self.nodes[node.at()].phase {
            NodePhase::Pauses(until) => until <= at,
            _ => false,
        };
        let due: Vec<NodeIndex> = self.unfinished.iter().filter(is_due).copied().collect();
        for node in due {
            self.nodes[node.at()].phase = NodePhase::Open;
            self.unfinished.remove(&node);
            if self.role(node) == NodeRole::Step {
                self.ready.insert(node);
            }
        }
        Some(())
    }

    fn pushed_back(&mut self, key: NodeKey) -> Fits {
        self.phase(key, &NodePhase::Waits)?;
        let back_to = self.plan.node(key.node)?.back_to?;
        let cleared = self.with_behind([back_to, key.node].into());
        // A try that is under way there would go on beside the next one.
        let works = |at: &NodeIndex| *at != key.node && self.unfinished.contains(at);
        (!self.ends_early() && !cleared.iter().any(works)).then_some(())?;
        self.rearm();
        self.clear(cleared);
        Some(())
    }

    fn retried(&mut self, from: RetryFrom, at: DateTime<Utc>) -> Fits {
        (self.stage == Stage::Over).then_some(())?;
        let all = || self.plan.indexed().map(|(at, _)| at);
        let cleared = match from {
            RetryFrom::Beginning => all().collect(),
            RetryFrom::Failed => self.not_well(),
            RetryFrom::Node { node, behind } => {
                (self.role(node) == NodeRole::Step && node.at() < self.nodes.len()).then_some(())?;
                let one = BTreeSet::from([node]);
                if behind { self.with_behind(one) } else { one }
            }
        };
        let first = cleared.iter().copied().find(|at| self.role(*at) == NodeRole::Step);
        (!cleared.is_empty()).then_some(())?;
        let handlers =
            all().filter(|at| !matches!(self.role(*at), NodeRole::Step | NodeRole::Init));
        let cleared: BTreeSet<_> = cleared.into_iter().chain(handlers).collect();
        (self.stopped, self.broken, self.outcome) = (None, false, None);
        (self.failed, self.leaves, self.began_at) = (0, None, at);
        self.rearms = false;
        self.transitions = 0;
        self.nodes.iter_mut().for_each(|node| node.visits = 0);
        self.clear(cleared);
        match (&self.plan.order, from) {
            (_, RetryFrom::Beginning) => {
                self.ready.clear();
                self.stage = Stage::Gate;
            }
            (NodeOrder::Machine { .. }, _) => self.visit(first?),
            _ => {}
        }
        Some(())
    }

    /// Steps that did not come to a good end, and all behind them.
    fn not_well(&self) -> BTreeSet<NodeIndex> {
        let well = |at: NodeIndex| match self.result(at) {
            Some(NodeResult { outcome: NodeOutcome::Succeeded, .. }) => true,
            Some(result) => result.counts_as_success || result.outcome == NodeOutcome::Skipped,
            None => false,
        };
        let steps = self
            .plan
            .indexed()
            .filter(|(_, node)| matches!(node.role, NodeRole::Step | NodeRole::Init));
        let ill: BTreeSet<_> = steps.map(|(at, _)| at).filter(|at| !well(*at)).collect();
        match self.plan.order {
            NodeOrder::Graph { .. } => self.with_behind(ill),
            NodeOrder::Machine { .. } => self.current.into_iter().collect(),
        }
    }

    fn with_behind(&self, from: BTreeSet<NodeIndex>) -> BTreeSet<NodeIndex> {
        let mut open: Vec<NodeIndex> = from.into_iter().collect();
        let mut found = BTreeSet::new();
        while let Some(at) = open.pop() {
            if found.insert(at) {
                open.extend(self.behind.get(at.at()).into_iter().flatten());
            }
        }
        found
    }

    /// Opens nodes again, and goes on with the steps.
    fn clear(&mut self, nodes: BTreeSet<NodeIndex>) {
        for at in nodes {
            self.open(at);
            self.unfinished.remove(&at);
        }
        self.stage = Stage::Steps;
        if let NodeOrder::Graph { .. } = self.plan.order {
            self.look_for_ready();
        }
    }
}
