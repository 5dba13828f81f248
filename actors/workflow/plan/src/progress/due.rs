//! Steps that are due where a run stands.

use super::{ChildPhase, NodeKey, NodePhase, RunProgress, Stage};
use crate::plan::{NodeIndex, NodeRole};

/// Step of a run. It stays due until its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueStep {
    /// Judges the conditions of the run.
    Gate,
    /// Begins a try of a node, goes on with one that was begun, or collects what its children left.
    Work(NodeKey),
    /// Begins a child of a try.
    Child(NodeKey, u32),
    /// Ends a try that waits, as the run is stopped.
    Leave(NodeKey),
    /// Finds the way on from a node of a machine.
    Move(NodeIndex),
    /// Records that nothing is left.
    Finish,
}

impl<A> RunProgress<A> {
    /// Steps that are due, those of nodes in the order of the plan. No more nodes than may work at a time.
    pub fn due(&self) -> Vec<DueStep> {
        match self.stage {
            Stage::Delay(_) | Stage::Pauses(_) | Stage::Over => Vec::new(),
            Stage::Gate => vec![DueStep::Gate],
            Stage::Init => self
                .plan
                .handler(NodeRole::Init)
                .into_iter()
                .flat_map(|at| self.of_node(at))
                .collect(),
            Stage::Steps => self.of_steps(),
            Stage::Handlers => {
                self.next_handler().into_iter().flat_map(|at| self.of_node(at)).collect()
            }
            Stage::Finished => vec![DueStep::Finish],
        }
    }

    fn of_steps(&self) -> Vec<DueStep> {
        let mut due: Vec<DueStep> = self.leaves.map(DueStep::Move).into_iter().collect();
        due.extend(self.unfinished.iter().flat_map(|at| self.of_node(*at)));
        let works = |at: &&NodeIndex| {
            matches!(self.nodes[at.at()].phase, NodePhase::Entered | NodePhase::Children(_))
        };
        let active = self.unfinished.iter().filter(works).count();
        let left = self.plan.bounds.active_nodes.max(1).saturating_sub(active);
        due.extend(self.ready.iter().take(left).flat_map(|at| self.of_node(*at)));
        if due.is_empty() && self.only_waits() {
            let handler = self.plan.handler(NodeRole::Wait);
            due.extend(handler.into_iter().flat_map(|at| self.of_node(at)));
        }
        due
    }

    /// Whether nothing goes on but waits for a person.
    fn only_waits(&self) -> bool {
        let waits = |at: &NodeIndex| self.nodes[at.at()].phase == NodePhase::Waits;
        self.ready.is_empty() && !self.unfinished.is_empty() && self.unfinished.iter().all(waits)
    }

    fn of_node(&self, node: NodeIndex) -> Vec<DueStep> {
        let progress = &self.nodes[node.at()];
        let (key, stops) = (self.key(node), self.ends_early());
        match &progress.phase {
            NodePhase::Open => vec![DueStep::Work(NodeKey { tries: key.tries + 1, ..key })],
            NodePhase::Entered => vec![DueStep::Work(key)],
            NodePhase::Waits | NodePhase::Children(_) if stops => vec![DueStep::Leave(key)],
            NodePhase::Children(children) => self.of_children(key, children),
            NodePhase::Waits | NodePhase::Pauses(_) | NodePhase::Ended(_) => Vec::new(),
        }
    }

    fn of_children(&self, key: NodeKey, children: &[ChildPhase]) -> Vec<DueStep> {
        let begun = children.iter().filter(|it| **it == ChildPhase::Begun).count();
        let at_once = self.plan.node(key.node).map_or(1, |node| node.children_at_once.max(1));
        let open = (0u32..).zip(children).filter(|(_, it)| **it == ChildPhase::Open);
        let left = at_once.saturating_sub(begun);
        open.take(left).map(|(child, _)| DueStep::Child(key, child)).collect()
    }
}
