//! One swarm: tasks, each in a fork of its own, then a merge, then nothing left of it.
//!
//! [`records`] say how far it got; an incarnation goes on from there. All work is one worker beside
//! the mailbox, [`saga`], so that a swarm has one hand that writes its records.

mod clean;
mod fork;
mod merge;
pub(crate) mod records;
mod report;
mod saga;
mod worker;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
};

use futures::FutureExt;
use hivekeep_kernel::{Address, Context, Entity, Fault, SwarmId, ToolError, ports::Reservation};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{refuse, shared::SwarmShared, swarms};
use records::{Record, SwarmState};
use saga::Run;

/// What a swarm can be told.
pub(crate) enum Msg {
    /// End now. Answered when that is durable; `false` when nothing was left to cut short.
    Cancel(oneshot::Sender<Result<bool, ToolError>>),
    /// Its work is done, or cannot go on.
    Done(Result<(), String>),
}

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) shared: Arc<SwarmShared>,
    pub(crate) id: SwarmId,
    pub(crate) swarms: Address<swarms::Msg>,
    /// How far it is, for whoever looks; outlives incarnations.
    pub(crate) view: Arc<watch::Sender<SwarmState>>,
    /// Of one that was planned just now, for its first incarnation: room for its forks. Nobody
    /// before that one can have made any. Never locked across an await.
    pub(crate) fresh: Arc<Mutex<Option<Reservation>>>,
}

/// A swarm.
pub(crate) struct Swarm {
    me: Context<Msg>,
    seed: Seed,
    stop: CancellationToken,
}

impl Entity for Swarm {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        let (journal, stream) = (seed.shared.journal.clone(), records::stream(seed.id));
        // What an incarnation before this one queued and did not wait for is written first.
        journal.settled().await.map_err(|error| Fault::new(error.to_string()))?;
        let loaded = tokio::task::spawn_blocking(move || records::load(&journal, &stream)).await;
        let (story, _) = loaded
            .map_err(|error| Fault::new(error.to_string()))?
            .map_err(Fault::new)?
            .ok_or_else(|| Fault::new("the swarm is forgotten"))?;
        let stop = CancellationToken::new();
        if matches!(&story, SwarmState::Going(state) if state.cancelled) {
            stop.cancel();
        }
        seed.view.send_replace(story);
        let reserved = seed.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        let run = Run {
            shared: seed.shared.clone(),
            id: seed.id,
            view: seed.view.clone(),
            stop: stop.clone(),
            swarms: seed.swarms.clone(),
            resumed: reserved.is_none(),
            reserved,
            waiting: AtomicUsize::new(0),
            starting: Semaphore::new(saga::starts_at_once()),
        };
        let swarm = me.address.clone();
        let _detached = me.workers.spawn(async move {
            let outcome = AssertUnwindSafe(run.go()).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err("its work panicked".to_owned()));
            // A swarm that is gone is followed by one that goes on from the records.
            let _ = swarm.send(Msg::Done(outcome));
        });
        Ok(Self { me, seed, stop })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Cancel(reply) => self.cancel(reply),
            Msg::Done(Ok(())) => self.me.stop("it is over"),
            Msg::Done(Err(reason)) => return Err(Fault::new(reason)),
        }
        Ok(())
    }
}

impl Swarm {
    fn cancel(&self, reply: oneshot::Sender<Result<bool, ToolError>>) {
        let (shared, id) = (self.seed.shared.clone(), self.seed.id);
        let (view, stop) = (self.seed.view.clone(), self.stop.clone());
        let open = |view: &watch::Sender<SwarmState>| matches!(&*view.borrow(), SwarmState::Going(state) if !state.settled());
        let _detached = self.me.workers.spawn(async move {
            // Whoever asked may have gone; so below.
            if !open(&view) {
                return drop(reply.send(Ok(false)));
            }
            let pieces = records::encode(&Record::Cancelled);
            let written = shared.journal.append(&records::stream(id), pieces).await;
            if written.is_ok() {
                saga::see(&view, Record::Cancelled);
            }
            // Its last step may have been recorded before it.
            let cut = matches!(&*view.borrow(), SwarmState::Going(state) if state.cancelled);
            if cut {
                stop.cancel();
            }
            drop(reply.send(written.map(|_| cut).map_err(|error| refuse::store(&error))));
        });
    }
}
