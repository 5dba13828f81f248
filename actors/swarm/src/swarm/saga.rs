//! The steps of a swarm, each from what the records say on.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use chrono::Utc;
use futures::{TryStreamExt, stream};
use hivekeep_kernel::{Address, SwarmId, fault_point, ports::Reservation};
use hivekeep_store::{NewEvent, Seq};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::records::{self, Kept, Record, State, SwarmState};
use crate::{shared::SwarmShared, swarms};

/// Why a swarm cannot go on just now: its records cannot be written. In words; its supervisor
/// starts it anew.
pub(super) type Stuck = String;

/// One incarnation's work.
pub(super) struct Run {
    pub(super) shared: Arc<SwarmShared>,
    pub(super) id: SwarmId,
    pub(super) view: Arc<watch::Sender<SwarmState>>,
    pub(super) stop: CancellationToken,
    pub(super) swarms: Address<swarms::Msg>,
    /// Another incarnation may have been at work before.
    pub(super) resumed: bool,
    /// Room for the forks; none of a swarm that goes on after a restart, whose forks take their
    /// room one by one.
    pub(super) reserved: Option<Reservation>,
    /// Tasks that have not begun.
    pub(super) waiting: AtomicUsize,
    /// Places for tasks on the way from their fork to their beginning. That takes a processor; more
    /// at once would all begin as late as the last one does, in turns the others are at work by then.
    pub(super) starting: Semaphore,
}

/// As many as processors, and one beside another at the least.
pub(super) fn starts_at_once() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().max(2))
}

/// Lets everybody who looks see a record. One that came too late changes nothing.
pub(super) fn see(view: &watch::Sender<SwarmState>, record: Record) {
    change(view, |state| {
        if let Err(record) = state.apply(record) {
            tracing::error!(record = record.kind(), "a record does not follow");
        }
    });
}

fn change(view: &watch::Sender<SwarmState>, change: impl FnOnce(&mut State)) {
    view.send_modify(|story| {
        if let SwarmState::Going(state) = story {
            change(Arc::make_mut(state));
        }
    });
}

impl Run {
    /// Everything that is left to do.
    pub(super) async fn go(mut self) -> Result<(), Stuck> {
        // What an earlier incarnation began to make would come to light afterwards.
        self.shared.tools.quiet(self.id).await;
        let story = self.view.borrow().clone();
        if let SwarmState::Going(state) = story {
            // Its session neither ends nor loses the forks meanwhile. A stop of the daemon counts
            // calls that are in flight, of which this is none.
            let (hold, closing) =
                (self.shared.sessions.hold(state.plan.owner), self.shared.closing.clone());
            let holding = async {
                closing.cancelled().await;
                drop(hold);
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                done = self.work(&state) => done?,
                never = holding => match never {},
            }
        }
        self.linger().await
    }

    async fn work(&mut self, state: &State) -> Result<(), Stuck> {
        // Work that is let go of tells what it began to stop; what a guest runs goes on.
        match self.shared.closing.clone().run_until_cancelled(self.tasks(state)).await {
            Some(done) => done?,
            None => std::future::pending().await,
        }
        // What no fork drew.
        self.reserved = None;
        self.merge().await?;
        let seq = self.clean().await?;
        fault_point!("swarm.after_cleanup");
        self.end(seq).await
    }

    async fn tasks(&self, state: &State) -> Result<(), Stuck> {
        let open = (0..state.tasks.len()).filter(|task| state.tasks[*task].end.is_none());
        self.waiting.store(open.clone().count(), Ordering::Relaxed);
        let tasks = open.map(|task| Ok(self.task(task)));
        stream::iter(tasks)
            .try_buffer_unordered(state.plan.max_parallel)
            .try_for_each(|()| async { Ok(()) })
            .await
    }

    /// The snapshot with all results takes the place of the records.
    async fn end(&self, upto: Seq) -> Result<(), Stuck> {
        fault_point!("swarm.before_end");
        let kept = self.state().kept(Utc::now());
        let bytes = self.keep(upto, &kept).await?;
        let summary = &kept.result.summary;
        let data = json!({
            "state": kept.result.state, "succeeded": summary.succeeded, "failed": summary.failed,
        });
        self.tell("swarm.ended", data);
        self.over(kept, bytes);
        Ok(())
    }

    pub(super) async fn keep(&self, upto: Seq, kept: &Kept) -> Result<usize, Stuck> {
        let bytes = records::encode_kept(kept);
        let size = bytes.len();
        let stream = records::stream(self.id);
        let written = self.shared.journal.snapshot(&stream, upto, bytes).await;
        written.map(|()| size).map_err(|error| error.to_string())
    }

    /// Its keeper, if it is gone, reads the journal.
    pub(super) fn over(&self, kept: Kept, bytes: usize) {
        self.view.send_replace(SwarmState::Over(Arc::new(kept)));
        let _ = self.swarms.send(swarms::Msg::over(self.id, bytes));
    }

    pub(super) fn tell(&self, kind: &str, data: serde_json::Value) {
        let event = NewEvent { kind: kind.to_owned(), subject: self.id.to_string(), data };
        let _lost_is_counted = self.shared.events.publish_later(event);
    }

    /// Never returns once the daemon stops: what fails from then on says nothing of the swarm, and
    /// the next start goes on from the records.
    pub(super) async fn unless_closing(&self) {
        if self.shared.closing.is_cancelled() {
            std::future::pending().await
        }
    }

    /// How far it is. Legal until its end.
    pub(super) fn state(&self) -> Arc<State> {
        match &*self.view.borrow() {
            SwarmState::Going(state) => state.clone(),
            SwarmState::Over(_) => unreachable!("whoever works is before the end"),
        }
    }

    /// Writes a record; when it is durable everybody sees it.
    pub(super) async fn note(&self, record: Record) -> Result<Seq, Stuck> {
        let stream = records::stream(self.id);
        let written = self.shared.journal.append(&stream, records::encode(&record)).await;
        let seq = written.map_err(|error| error.to_string())?;
        see(&self.view, record);
        Ok(seq)
    }

    /// A change of what is not recorded.
    pub(super) fn notice(&self, task: usize, change: impl FnOnce(&mut records::Task)) {
        self::change(&self.view, |state| change(&mut state.tasks[task]));
    }
}
