//! Records of a run's progress, and the words that they are made of.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::plan::NodeIndex;

/// Try of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeKey {
    /// Place of the node.
    pub node: NodeIndex,
    /// Number of the try, from 1; no other try of the node ever has it.
    pub tries: u32,
}

/// Judgement of the conditions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conditions {
    /// All hold.
    Met,
    /// A condition does not hold.
    NotMet,
    /// A condition could not be judged.
    Failed,
}

/// Outcome of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// The node did what it should.
    Succeeded,
    /// The node did not do what it should.
    Failed,
    /// The node was left out: its conditions do not hold, or those of a node before it.
    Skipped,
    /// The node was stopped, or cannot begin any more.
    Aborted,
    /// A person refused it.
    Rejected,
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every node succeeded, or was left out.
    Succeeded,
    /// Nodes failed behind which the run was to go on.
    PartlySucceeded,
    /// A node failed, or the time was over.
    Failed,
    /// The run was stopped, or its conditions do not hold.
    Aborted,
    /// A person refused a node.
    Rejected,
}

/// End of a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TryEnd {
    /// Outcome of the try.
    pub outcome: NodeOutcome,
    /// Exit status, where something exited.
    pub exit_code: Option<i32>,
    /// True if what it wrote says that later nodes go on all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub said: bool,
    /// True if the condition for a further round holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// True if no further attempt makes sense.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// Child of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildPhase {
    /// Not begun.
    Open,
    /// Begun, or about to be.
    Begun,
    /// Over, with success.
    Succeeded,
    /// Over, without.
    Failed,
}

/// Way of a machine from a node that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum MachineMove {
    /// To a node.
    Node {
        /// Place of the node.
        node: NodeIndex,
    },
    /// To the end.
    Completed,
    /// Nowhere: no transition holds, or a bound is reached.
    Failed,
}

/// Reason of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStop {
    /// A person or a program asked for it, or the parent of the run was stopped.
    Asked,
    /// Its time is over.
    Timeout,
    /// Its conditions do not hold.
    Conditions,
}

/// Nodes from which a run that is over is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum RetryFrom {
    /// Every node.
    Beginning,
    /// Those that did not succeed, and all behind them.
    Failed,
    /// A single node.
    Node {
        /// Place of the node.
        node: NodeIndex,
        /// True to clear all behind it too.
        behind: bool,
    },
}

/// Record of a run's progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "progress", rename_all = "snake_case")]
pub enum ProgressRecord {
    /// The conditions of the run were judged.
    Gated {
        /// Judgement of all.
        conditions: Conditions,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A try of a node begins. Recorded before anything is done for it.
    Entered {
        /// Try of the node.
        key: NodeKey,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A try has ended.
    Ended {
        /// Try of the node.
        key: NodeKey,
        /// End of the try.
        end: TryEnd,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A try waits for a person.
    Waits {
        /// Try of the node.
        key: NodeKey,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A try waits for a time, at which another one begins.
    Delayed {
        /// Try of the node.
        key: NodeKey,
        /// Time of the next try.
        until: DateTime<Utc>,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A person sent a try back to the earlier node that it names.
    PushedBack {
        /// Try of the node.
        key: NodeKey,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A try has children, whose items are recorded with this.
    Expanded {
        /// Try of the node.
        key: NodeKey,
        /// Number of children.
        children: u32,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A child of a try is about to begin.
    ChildBegun {
        /// Try of the node.
        key: NodeKey,
        /// Place of the child.
        child: u32,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A child of a try is over.
    ChildEnded {
        /// Try of the node.
        key: NodeKey,
        /// Place of the child.
        child: u32,
        /// Whether it succeeded.
        succeeded: bool,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A machine goes on from a node.
    Moved {
        /// Node that it leaves.
        left: NodeIndex,
        /// Way that it takes.
        #[serde(flatten)]
        way: MachineMove,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// The run is stopped.
    Stopped {
        /// Reason of the stop.
        reason: RunStop,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// A time has come that something waited for.
    Woken {
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// The run that was over goes on.
    Retried {
        /// Nodes that are done again.
        #[serde(flatten)]
        from: RetryFrom,
        /// Time of the record.
        at: DateTime<Utc>,
    },
    /// Nothing of the run goes on.
    Over {
        /// Time of the record.
        at: DateTime<Utc>,
    },
}

impl ProgressRecord {
    /// Time of the record.
    pub fn at(&self) -> DateTime<Utc> {
        match self {
            Self::Gated { at, .. }
            | Self::Entered { at, .. }
            | Self::Ended { at, .. }
            | Self::Waits { at, .. }
            | Self::Delayed { at, .. }
            | Self::PushedBack { at, .. }
            | Self::Expanded { at, .. }
            | Self::ChildBegun { at, .. }
            | Self::ChildEnded { at, .. }
            | Self::Moved { at, .. }
            | Self::Stopped { at, .. }
            | Self::Woken { at }
            | Self::Retried { at, .. }
            | Self::Over { at } => *at,
        }
    }
}
