//! Messages to the pool, in types that know nothing of that actor.

use hivekeep_kernel::{Address, WorkspaceId};
use tokio::sync::oneshot;

use super::stock::Outcome;
use crate::{
    api::pool::PoolReport,
    phase::Phase,
    records::{MadeOf, WorkspaceSpec},
    traffic::Passing,
    workspace,
};

/// What the pool can be told.
pub enum Msg {
    /// Give a machine away that is exactly so.
    Take {
        /// Its image, isolation and size.
        spec: WorkspaceSpec,
        /// What it has to be made from.
        made_of: MadeOf,
        /// Where it is, if there is one.
        taken: oneshot::Sender<Option<(WorkspaceId, Address<workspace::Msg>)>>,
    },
    /// One that was given away is of no use: remove it.
    Spoilt {
        /// Its image, isolation and size.
        spec: WorkspaceSpec,
        /// Which.
        id: WorkspaceId,
        /// What was wrong with it.
        reason: String,
    },
    /// Give up a machine for somebody who needs its place; whether one was.
    Evict(oneshot::Sender<bool>),
    /// A machine's state changed.
    Phase {
        /// Which.
        id: WorkspaceId,
        /// The new one.
        phase: Phase,
    },
    /// What there is.
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
