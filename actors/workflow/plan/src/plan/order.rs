//! Order of a plan's nodes: a graph of what follows what, or a machine that goes from state to state.

use serde::{Deserialize, Serialize};

use super::{MAX_NODES, NodeIndex, NodeRole, RunPlan};

/// Way from node to node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum NodeOrder {
    /// Nodes begin when what they follow has ended.
    Graph {
        /// Nodes that each node follows, by the node's place.
        follows: Vec<Vec<NodeIndex>>,
    },
    /// Nodes run one at a time; where it goes on is decided when a node has ended.
    Machine {
        /// First node.
        initial: NodeIndex,
        /// Most visits of each node, by the node's place.
        visits: Vec<u32>,
        /// Most ways from node to node.
        transitions: u32,
    },
}

/// Fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPlanError {
    /// More nodes than [`MAX_NODES`].
    TooManyNodes(usize),
    /// No node but handlers.
    Empty,
    /// Two nodes of this name.
    Twice(String),
    /// A place without a node, or lists that do not fit the nodes.
    Broken,
    /// Nodes that follow one another in a circle, by their names.
    Cycle(Vec<String>),
}

impl<A> RunPlan<A> {
    /// Checks that a run of the plan comes to an end by itself.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self) -> Result<(), RunPlanError> {
        if self.nodes.len() > MAX_NODES {
            return Err(RunPlanError::TooManyNodes(self.nodes.len()));
        }
        if !self.nodes.iter().any(|node| node.role == NodeRole::Step) {
            return Err(RunPlanError::Empty);
        }
        let mut names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RunPlanError::Twice(pair[0].to_owned()));
        }
        let is_step = |at: NodeIndex| self.node(at).is_some_and(|it| it.role == NodeRole::Step);
        if self.nodes.iter().filter_map(|node| node.back_to).any(|at| !is_step(at)) {
            return Err(RunPlanError::Broken);
        }
        match &self.order {
            NodeOrder::Graph { follows } => {
                let fits = follows.len() == self.nodes.len();
                if !fits || !follows.iter().flatten().all(|at| is_step(*at)) {
                    return Err(RunPlanError::Broken);
                }
                self.check_cycles(follows)
            }
            NodeOrder::Machine { initial, visits, .. } => {
                match is_step(*initial) && visits.len() == self.nodes.len() {
                    true => Ok(()),
                    false => Err(RunPlanError::Broken),
                }
            }
        }
    }

    /// Takes nodes away whose predecessors are gone, until none is left or each one left waits for another.
    fn check_cycles(&self, follows: &[Vec<NodeIndex>]) -> Result<(), RunPlanError> {
        let mut waits: Vec<usize> = follows.iter().map(Vec::len).collect();
        let behind = successors(follows);
        let mut free: Vec<NodeIndex> =
            self.indexed().map(|(at, _)| at).filter(|at| waits[at.at()] == 0).collect();
        let mut gone = 0;
        while let Some(at) = free.pop() {
            gone += 1;
            for next in &behind[at.at()] {
                waits[next.at()] -= 1;
                if waits[next.at()] == 0 {
                    free.push(*next);
                }
            }
        }
        if gone == self.nodes.len() {
            return Ok(());
        }
        let left = self.indexed().filter(|(at, _)| waits[at.at()] > 0);
        Err(RunPlanError::Cycle(left.map(|(_, node)| node.name.clone()).collect()))
    }
}

/// Nodes behind each node, by its place.
pub(crate) fn successors(follows: &[Vec<NodeIndex>]) -> Vec<Vec<NodeIndex>> {
    let mut behind = vec![Vec::new(); follows.len()];
    for (before, at) in follows.iter().zip(0u16..) {
        for before in before {
            behind[before.at()].push(NodeIndex(at));
        }
    }
    behind
}
