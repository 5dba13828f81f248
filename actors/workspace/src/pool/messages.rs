//! Messages to the pool and its report, in types that know nothing of that actor.

use hivekeep_kernel::{Address, WorkspaceId};
use hivekeep_machine::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    lifecycle::api::Size,
    messages,
    phase::Phase,
    pool::stock::Outcome,
    records::{MadeOf, WorkspaceSpec},
    traffic::Passing,
};

/// Messages to the pool.
pub enum Msg {
    /// Give away a machine of exactly this kind.
    Take {
        /// The machine's image, isolation and size.
        spec: WorkspaceSpec,
        /// Digest of what the machine must be made from.
        made_of: MadeOf,
        /// Answered with the machine, if there is one.
        taken: oneshot::Sender<Option<(WorkspaceId, Address<messages::Msg>)>>,
    },
    /// A machine that was given away is of no use: remove it.
    Spoilt {
        /// The machine's image, isolation and size.
        spec: WorkspaceSpec,
        /// The machine.
        id: WorkspaceId,
        /// Why the machine is of no use.
        reason: String,
    },
    /// Remove a machine to free its slot; answers whether one was removed.
    Evict(oneshot::Sender<bool>),
    /// A machine's state changed.
    Phase {
        /// The machine.
        id: WorkspaceId,
        /// The new state.
        phase: Phase,
    },
    /// Report the pool's state.
    Report(oneshot::Sender<PoolReport>),
    /// The daemon stops its machines: make and remove nothing any more.
    Halt,
    /// A piece of work came to its end.
    Done(WorkDone),
}

/// The end of a piece of the pool's own work.
pub struct WorkDone(pub(super) End);

pub(super) enum End {
    Work { at: usize, outcome: Outcome, making: Option<Passing> },
    Discard { id: WorkspaceId, gone: bool },
    Due,
    Doubt,
}

/// Show the machines that are kept ready, so that workspace_create need not wait
/// for a boot: how many of each class there are, how they are made, and what
/// failed last. A creation takes one when it asks for exactly the image,
/// isolation and size of a class.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolStatus {}

/// Machines that the pool has and lacks, by class.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolReport {
    /// The classes in the order of the configuration; empty: the pool is off.
    pub classes: Vec<PoolClass>,
}

/// Machines of one image and size.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolClass {
    /// Image of the machines.
    pub image: String,
    /// Isolation of the machines.
    pub isolation: Isolation,
    /// Size of a machine.
    pub resources: Size,
    /// Number of machines that are to be ready.
    pub wanted: usize,
    /// Number of machines that are ready.
    pub ready: usize,
    /// Whether something is being made or looked at for this class now.
    pub at_work: bool,
    /// Method by which the machines are made.
    pub made_by: Production,
    /// Why the machines boot instead of being copied.
    pub boots_because: Option<String>,
    /// The stopped machine that the others are copies of, once there is one.
    pub template: Option<WorkspaceId>,
    /// The machines of the class, oldest first. Each keeps its id when somebody is given it.
    pub machines: Vec<PoolMachine>,
    /// Creations that were given a machine of the class since the daemon's start.
    pub claimed: u64,
    /// Creations that asked for this class and found none ready.
    pub missed: u64,
    /// Why a machine could not be made, if that was the last attempt.
    pub last_failure: Option<String>,
    /// How many attempts failed since the last success.
    pub failures_in_a_row: u32,
    /// Milliseconds until the next attempt.
    pub again_in_ms: Option<u64>,
}

/// A machine of the pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolMachine {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Whether its guest answers; false while a daemon that was restarted takes it up again.
    pub ready: bool,
}

/// Method by which the machines of a class are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Production {
    /// Copies of the memory and disk of a machine that booted.
    Copy,
    /// Each machine boots.
    Boot,
}
