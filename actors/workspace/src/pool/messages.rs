//! Messages to the pool, in types that know nothing of that actor.

use hivekeep_kernel::{Address, WorkspaceId};
use tokio::sync::oneshot;

use crate::{
    messages,
    phase::Phase,
    pool::{api::PoolReport, stock::Outcome},
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
