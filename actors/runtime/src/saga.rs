//! A durable saga: a run of steps, each recorded when it is done, resumed from the records.
//!
//! ```text
//!              ┌─────── what is due now ───────┐
//!              ▼                               │ its records are durable
//! resumed ─▶ steps, some at a time ─▶ one ended ┤
//!              │                               └─ nothing is due, nothing runs: the actor ends
//!              ├─ the log fails, or a step panics: the incarnation fails, its supervisor starts
//!              │  another, which goes on from the records
//!              ├─ cancelled: recorded first, then steps are told and come to their ends
//!              └─ the daemon is stopped in order: no step is begun any more, those that may be
//!                 interrupted are dropped; the next daemon goes on from the records
//! ```
//! A [`Saga`] says which steps are due in a state and takes them; [`SagaActor`] runs it as an actor,
//! and [`SagaHandle`] outlives its incarnations: who watches, cancels or records goes through it. A
//! step may be taken again when its daemon died before its record: it looks for what it made before
//! it makes it. While a saga is not finished it holds its session, as a call in flight does.

mod actor;
mod handle;
mod run;

use std::{fmt::Debug, future::ready};

use hivekeep_kernel::SessionId;

pub use actor::{SagaActor, SagaSeed};
pub use handle::{SagaHandle, SagaView};

use crate::log::{LogError, Sourced};

/// The state of a saga, as its records add up to it.
pub trait SagaState: Sourced {
    /// The session that it holds; `None` when it is finished, though steps may be left.
    fn holds(&self) -> Option<SessionId>;

    /// Whether it is cancelled.
    fn is_cancelled(&self) -> bool;

    /// The record that cancels it; `None` when nothing is left that could be cut short.
    fn cancellation(&self) -> Option<Self::Record>;
}

/// An incarnation of a saga.
pub trait Saga: Sized + Send + Sync + 'static {
    /// State that the records add up to.
    type State: SagaState;
    /// A step.
    type Step: Copy + Eq + Debug + Send + Sync;
    /// State that is seen and never recorded; empty when an incarnation begins.
    type Live: Clone + Default + Send + Sync;
    /// Arguments of an incarnation, beside its records.
    type Args: Clone + Send + Sync + 'static;

    /// An incarnation that goes on from the records.
    fn resume(args: Self::Args, handle: SagaHandle<Self>) -> Self;

    /// Waits until nothing goes on that an incarnation before this one began.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Steps that can be taken now, the most urgent first, while these run. One that has left its
    /// records is not among them.
    fn due(state: &Self::State, running: &[Self::Step]) -> Vec<Self::Step>;

    /// Most steps at a time.
    fn parallel(state: &Self::State) -> usize;

    /// Whether an ordered stop of the daemon drops the step where it stands. Another is left to its end.
    fn interruptible(step: Self::Step) -> bool;

    /// Takes a step up to its last record. What goes wrong with the step itself is recorded.
    ///
    /// # Errors
    /// When nothing can be recorded.
    fn step(&self, step: Self::Step) -> impl Future<Output = Result<(), LogError>> + Send;
}

#[cfg(test)]
mod tests;
