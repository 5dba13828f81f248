//! Plan of a run: nodes, the order in which they are entered, and the bounds of the whole.

mod order;
mod policy;

use serde::{Deserialize, Serialize};

pub(crate) use order::successors;
pub use order::{NodeOrder, RunPlanError};
pub use policy::{AttemptPolicy, ExitCodes, FailurePolicy, RepeatBound};

/// Most nodes of a plan, its handlers among them.
pub const MAX_NODES: usize = 10_000;

/// Place of a node in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIndex(pub u16);

impl NodeIndex {
    /// Place in a list of all nodes.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// Plan of a run. `A` is the work of a node, which nothing here looks at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan<A> {
    /// Name of the DAG or of the workflow.
    pub name: String,
    /// Nodes in the order of their text, handlers behind the others.
    pub nodes: Vec<PlanNode<A>>,
    /// Way from node to node.
    pub order: NodeOrder,
    /// Bounds of the whole.
    pub bounds: PlanBounds,
    /// Further attempts of the whole behind a failure.
    pub attempts: Option<AttemptPolicy>,
    /// True if conditions are judged before anything else.
    pub gated: bool,
}

/// Bounds of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanBounds {
    /// Nodes that work at a time.
    pub active_nodes: usize,
    /// Time from the beginning to the end by force.
    pub timeout_ms: Option<u64>,
    /// Pause before the first node.
    pub delay_ms: u64,
}

/// Part that a node has in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Step of a DAG, or state of a workflow.
    Step,
    /// Before the steps.
    Init,
    /// When nothing goes on but what waits for a person.
    Wait,
    /// Behind a success.
    Success,
    /// Behind a failure.
    Failure,
    /// Behind a stop, and behind conditions that do not hold.
    Abort,
    /// Behind everything, however it ended.
    Exit,
}

/// Node of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanNode<A> {
    /// Name, unique in its plan.
    pub name: String,
    /// Name by which texts refer to what it left.
    pub id: Option<String>,
    /// Part in the run.
    pub role: NodeRole,
    /// Work of the node.
    pub action: A,
    /// Failures behind which later nodes go on all the same.
    pub failure: FailurePolicy,
    /// Further attempts behind a failure.
    pub attempts: Option<AttemptPolicy>,
    /// Bound of further rounds, of a node that has a condition for them.
    pub repeats: Option<RepeatBound>,
    /// Children that work at a time, of a node that has children.
    pub children_at_once: usize,
    /// Node that a person's refusal goes back to; without one a refusal fails the node.
    pub back_to: Option<NodeIndex>,
}

impl<A> RunPlan<A> {
    /// Node at a place.
    pub fn node(&self, at: NodeIndex) -> Option<&PlanNode<A>> {
        self.nodes.get(at.at())
    }

    /// Places of all nodes, with the nodes.
    pub fn indexed(&self) -> impl Iterator<Item = (NodeIndex, &PlanNode<A>)> {
        // A plan with more nodes is refused.
        self.nodes.iter().zip(0u16..).map(|(node, at)| (NodeIndex(at), node))
    }

    /// Handler for a part of a run.
    pub fn handler(&self, role: NodeRole) -> Option<NodeIndex> {
        self.indexed().find(|(_, node)| node.role == role).map(|(at, _)| at)
    }
}
