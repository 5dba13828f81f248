//! Swarm: a durable saga of tasks in forks, a merge and a removal.
//!
//! ```text
//!            each task, `max_parallel` at a time
//! planned ─▶ fork ─▶ files ─▶ put ─▶ result ─▶ fork removed ─┐
//!                                                            ▼ all have ended
//!            finished ◀─ removed ◀───────────────────────── merge
//!                │
//!                └─ forks that could not be removed are tried again until they are gone
//! ```
//! [`SwarmState`] is moved by records alone, and those are written by the steps of
//! [`SwarmSaga`] and by a cancellation. A task that fails, to be forked, put or run, fails alone and
//! its end is recorded; a merge that fails is recorded too, and the forks whose commits are nowhere
//! else stay. Only records that cannot be written stop a swarm: its actor fails, and the next one, or
//! the next daemon, goes on from them.

mod clean;
mod fork;
mod merge;
pub(crate) mod report;
pub(crate) mod state;
mod task;

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use hivekeep_kernel::{SwarmId, lock};
use hivekeep_ports::Reservation;
use hivekeep_runtime::{
    log::LogError,
    saga::{Saga, SagaHandle},
};
use hivekeep_store::NewEvent;
use tokio::sync::Semaphore;

use crate::shared::SwarmShared;
use state::{RunningSwarm, SwarmState};

/// Observed state of a running swarm, repeated rather than recorded. Sets hold indexes of tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObservedSwarm {
    /// Tasks that are in their guests.
    pub(crate) started: BTreeSet<usize>,
    /// Tasks whose forks are removed.
    pub(crate) removed: BTreeSet<usize>,
}

/// A step of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwarmStep {
    /// A task, from its fork to its end.
    Task(usize),
    /// The merge of what the tasks committed.
    Merge,
    /// The removal of the forks, which ends the swarm.
    Clean,
    /// The removal of what the end had to leave.
    CleanLeft,
}

/// Start arguments of each incarnation.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) shared: Arc<SwarmShared>,
    pub(crate) id: SwarmId,
    /// Room for the forks of a swarm that was planned just now, for its first incarnation: nothing
    /// before that one can have made a fork. Never locked across an await.
    pub(crate) fresh: Arc<Mutex<Option<Reservation>>>,
}

/// Incarnation of a swarm.
pub(crate) struct SwarmSaga {
    shared: Arc<SwarmShared>,
    id: SwarmId,
    handle: SagaHandle<Self>,
    /// Another incarnation may have been at work before.
    resumed: bool,
    /// Room for the forks; none of a swarm that goes on after a restart, whose forks take their
    /// room one by one.
    reserved: Mutex<Option<Reservation>>,
    /// Tasks that have not begun.
    waiting: AtomicUsize,
    /// Places for tasks on the way from their fork to their beginning. That takes a processor; more
    /// at once would all begin as late as the last one does, in turns the others are at work by then.
    starting: Semaphore,
}

impl Saga for SwarmSaga {
    type State = SwarmState;
    type Step = SwarmStep;
    type Live = ObservedSwarm;
    type Args = Args;

    fn resume(Args { shared, id, fresh }: Args, handle: SagaHandle<Self>) -> Self {
        let reserved = lock(&fresh).take();
        let waiting = match handle.state() {
            SwarmState::Running(state) => state.open_tasks().count(),
            SwarmState::Finished(_) => 0,
        };
        Self {
            shared,
            id,
            handle,
            resumed: reserved.is_none(),
            reserved: Mutex::new(reserved),
            waiting: AtomicUsize::new(waiting),
            starting: Semaphore::new(starts_at_once()),
        }
    }

    async fn ready(&self) {
        // Waits for calls of earlier incarnations, which may still make workspaces.
        self.shared.tools.quiet(self.id).await;
    }

    fn due(state: &SwarmState, running: &[SwarmStep]) -> Vec<SwarmStep> {
        let state = match state {
            SwarmState::Finished(over) if over.result.workers_left.is_empty() => return Vec::new(),
            SwarmState::Finished(_) => return vec![SwarmStep::CleanLeft],
            SwarmState::Running(state) => state,
        };
        let tasks: Vec<_> = state.open_tasks().map(SwarmStep::Task).collect();
        match state.plan.merge.is_some() && state.merged.is_none() {
            _ if !tasks.is_empty() => tasks,
            // A task that has ended may still remove its fork.
            _ if running.iter().any(|step| matches!(step, SwarmStep::Task(_))) => Vec::new(),
            true => vec![SwarmStep::Merge],
            false => vec![SwarmStep::Clean],
        }
    }

    fn parallel(state: &SwarmState) -> usize {
        match state {
            SwarmState::Running(state) => state.plan.max_parallel,
            SwarmState::Finished(_) => 1,
        }
    }

    /// A task may be dropped: its calls are then cancelled; what a guest runs goes on.
    fn interruptible(step: SwarmStep) -> bool {
        matches!(step, SwarmStep::Task(_))
    }

    async fn step(&self, step: SwarmStep) -> Result<(), LogError> {
        match step {
            SwarmStep::Task(task) => self.task(task).await,
            SwarmStep::Merge => self.merge().await,
            SwarmStep::Clean => self.clean().await,
            SwarmStep::CleanLeft => self.clean_left().await,
        }
    }
}

impl SwarmSaga {
    /// State of the running swarm. Legal until its end.
    fn state(&self) -> Arc<RunningSwarm> {
        match self.handle.state() {
            SwarmState::Running(state) => state,
            SwarmState::Finished(_) => unreachable!("whoever works is before the end"),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.handle.cancelled().is_cancelled()
    }

    /// Room for a fork, while any is reserved.
    fn room(&self) -> Option<Reservation> {
        lock(&self.reserved).clone()
    }

    /// Gives back what no fork drew.
    fn release_room(&self) {
        drop(lock(&self.reserved).take());
    }

    fn tell(&self, kind: &str, data: serde_json::Value) {
        let _lost_is_counted = self.shared.events.publish_later(event(self.id, kind, data));
    }

    /// Never returns once the daemon stops: failures from then on say nothing of the swarm, and
    /// the next start goes on from the records.
    async fn unless_closing(&self) {
        if self.shared.closing.is_cancelled() {
            pending().await
        }
    }
}

/// An event about a swarm.
pub(crate) fn event(id: SwarmId, kind: &str, data: serde_json::Value) -> NewEvent {
    NewEvent { kind: kind.to_owned(), subject: id.to_string(), data }
}

/// Number of tasks that start at once: as many as processors, and at least two.
fn starts_at_once() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().max(2))
}
