//! A manager of all swarms: runs those that are not over, keeps results, and serves the tools.

mod contexts;
mod plan;
mod run;
mod status;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{
    ChildEnd, Context, Entity, Fault, Layer, SessionId, SwarmId, ToolCall, ToolError, serve,
};
use hivekeep_ports::Reservation;
use hivekeep_runtime::{
    collection::{self, Collection, CollectionMember, MemberEnd, NotAdmitted},
    log::{Loaded, Log},
    saga::{SagaActor, SagaArgs, SagaHandle},
};
use hivekeep_store::StreamId;
use tokio::sync::oneshot;

use crate::{
    codes,
    shared::SwarmShared,
    swarm::{
        self, SwarmSaga, report,
        state::{FinishedSwarm, SwarmPlan, SwarmState, stream},
    },
    tools::{FAMILY, SwarmResult, SwarmRow},
};

/// Bound of the results of all finished swarms together. The oldest are dropped first.
const MOST_KEPT_BYTES: usize = 64 * 1024 * 1024;
/// The state of a swarm that waits for the daemon's next start.
const GIVEN_UP: &str = "given_up";
const SECS_A_DAY: u64 = 24 * 60 * 60;

/// Messages of the manager.
pub struct Msg(Inner);

enum Inner {
    /// A routed call.
    Tool(Box<ToolCall>),
    /// Make room for a swarm that is going to be planned.
    Admit(Box<SwarmPlan>, oneshot::Sender<Result<(), ToolError>>),
    /// The swarm was not planned after all.
    Drop(SwarmId),
    /// The swarm's plan is durable: run it.
    Start(SwarmId, SagaHandle<SwarmSaga>, Reservation, oneshot::Sender<Started>),
}

/// The handle that is watched from then on.
type Started = Result<SagaHandle<SwarmSaga>, Fault>;

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self(Inner::Tool(Box::new(call)))
    }
}

/// A swarm as its manager has it.
enum SwarmMember {
    /// Being written down.
    Planned { owner: SessionId, row: SwarmRow },
    /// A saga, also while it removes what its end had to leave, or is given up.
    Saga(SagaHandle<SwarmSaga>),
    /// Only its result is left, in the journal: so many bytes.
    Finished { owner: SessionId, row: SwarmRow, bytes: usize },
}

impl CollectionMember for SwarmMember {
    type Id = SwarmId;
    type Actor = SagaActor<SwarmSaga>;
    const KIND: &'static str = "swarm";

    fn takes_place(&self) -> bool {
        match self {
            Self::Planned { .. } => true,
            Self::Saga(handle) => handle.view(|view| matches!(view.state, SwarmState::Running(_))),
            Self::Finished { .. } => false,
        }
    }
}

impl SwarmMember {
    fn planned(plan: &SwarmPlan) -> Self {
        let row = SwarmRow {
            swarm_id: plan.id,
            state: "planned".to_owned(),
            owned: true,
            summary: None,
            started_at: plan.at,
            ended_at: None,
        };
        Self::Planned { owner: plan.owner, row }
    }

    fn finished(over: &FinishedSwarm) -> Self {
        let bytes = over.snapshot().map_or(0, |bytes| bytes.len());
        Self::Finished { owner: over.owner, row: report::row_of(&over.result), bytes }
    }

    fn owner(&self) -> SessionId {
        match self {
            Self::Planned { owner, .. } | Self::Finished { owner, .. } => *owner,
            Self::Saga(handle) => handle.view(|view| view.state.owner()),
        }
    }

    fn row(&self, session: SessionId) -> SwarmRow {
        let row = match self {
            Self::Planned { row, .. } | Self::Finished { row, .. } => row.clone(),
            Self::Saga(handle) => {
                let given_up = handle.view(|view| view.given_up.is_some());
                let row = handle.view(report::row);
                if given_up { SwarmRow { state: GIVEN_UP.to_owned(), ..row } } else { row }
            }
        };
        SwarmRow { owned: self.owner() == session, ..row }
    }
}

/// The manager.
pub struct Swarms {
    me: Context<Msg>,
    shared: Arc<SwarmShared>,
    swarms: Collection<SwarmMember>,
}

impl Entity for Swarms {
    type Msg = Msg;
    type Args = Arc<SwarmShared>;

    async fn start(shared: Arc<SwarmShared>, me: Context<Msg>) -> Result<Self, Fault> {
        // Decisions of swarms of an earlier incarnation are written first.
        for handle in shared.take_handles() {
            handle.settled().await;
        }
        let all = collection::load::<SwarmState, SwarmId>(&shared.journal).await?;
        let swarms = Collection::new(&me, shared.census.clone());
        let mut manager = Self { me, shared, swarms };
        for (id, loaded) in all {
            manager.restore(id, loaded).await?;
        }
        manager.prune();
        Ok(manager)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, &[&FAMILY], &workers, *call);
            }
            // Whoever asked may have gone; so below.
            Inner::Admit(plan, reply) => drop(reply.send(self.admit(&plan))),
            Inner::Drop(id) => drop(self.swarms.remove(id)),
            Inner::Start(id, handle, room, reply) => {
                drop(reply.send(self.start_planned(id, handle, room)));
            }
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let Some((id, ended)) = self.swarms.handle_end(end)? else { return Ok(()) };
        let Some(SwarmMember::Saga(handle)) = self.swarms.get(id) else { return Ok(()) };
        let handle = handle.clone();
        match (handle.state(), ended) {
            (SwarmState::Finished(over), _) => {
                self.shared.drop_handle(id);
                self.put(id, SwarmMember::finished(&over));
                self.prune();
            }
            (SwarmState::Running(_), MemberEnd::GivenUp(reason)) => handle.give_up(&reason),
            (SwarmState::Running(_), MemberEnd::InOrder) => handle.give_up("its actor ended"),
        }
        Ok(())
    }
}

impl Swarms {
    async fn restore(&mut self, id: SwarmId, loaded: Loaded<SwarmState>) -> Result<(), Fault> {
        let over = match &loaded.state {
            SwarmState::Finished(over) if over.result.workers_left.is_empty() => Some(over.clone()),
            _ => None,
        };
        let log = Log::of(self.shared.journal.clone(), stream(id), Some(loaded));
        let Some(over) = over else {
            let handle = SagaHandle::new(log).ok_or_else(|| Fault::new("it was just loaded"))?;
            return self.run_swarm(id, handle, None);
        };
        // The log of a swarm whose daemon died before folding it is folded now.
        log.idle().await;
        self.put(id, SwarmMember::finished(&over));
        Ok(())
    }

    fn admit(&mut self, plan: &SwarmPlan) -> Result<(), ToolError> {
        let admitted =
            self.swarms.admit(plan.id, SwarmMember::planned(plan), self.shared.options.max_running);
        let limit = self.shared.options.max_running;
        admitted.map_err(|refused| match refused {
            NotAdmitted::Full(running) => {
                let message =
                    format!("{running} swarms run, as many as `swarm.max_running` allows");
                ToolError::new(Layer::Actor, codes::TOO_MANY_SWARMS, message)
                    .next("wait for one with swarm_status; nothing was done")
                    .retryable()
                    .detail("limit", limit)
            }
            NotAdmitted::NameTaken(id) => {
                ToolError::internal(format!("the swarm {id} has no name"))
            }
        })
    }

    /// Starts a swarm that was planned just now, unless this incarnation has read its plan already.
    fn start_planned(
        &mut self,
        id: SwarmId,
        handle: SagaHandle<SwarmSaga>,
        room: Reservation,
    ) -> Started {
        match self.swarms.get(id) {
            Some(SwarmMember::Saga(known)) => Ok(known.clone()),
            _ => self.run_swarm(id, handle.clone(), Some(room)).map(|()| handle),
        }
    }

    /// Gives a swarm its actor; `fresh` is the room of one that was planned just now.
    fn run_swarm(
        &mut self,
        id: SwarmId,
        handle: SagaHandle<SwarmSaga>,
        fresh: Option<Reservation>,
    ) -> Result<(), Fault> {
        self.shared.keep_handle(id, handle.clone());
        self.put(id, SwarmMember::Saga(handle.clone()));
        let args = SagaArgs {
            args: swarm::Args {
                shared: self.shared.clone(),
                id,
                fresh: Arc::new(Mutex::new(fresh)),
            },
            handle: handle.clone(),
            sessions: self.shared.sessions.clone(),
            closing: self.shared.closing.clone(),
        };
        let started = self.swarms.start(id, args);
        started.map(drop).inspect_err(|Fault(reason)| handle.give_up(reason))
    }

    fn put(&mut self, id: SwarmId, member: SwarmMember) {
        // No swarm has a name that could be taken.
        let _no_names = self.swarms.insert(id, member);
    }

    /// Lets the oldest results go, as far as there are too many, too old ones or too much of them.
    fn prune(&mut self) {
        let options = &self.shared.options;
        let now = Utc::now();
        let age = Duration::from_secs(u64::from(options.kept_days) * SECS_A_DAY);
        let over = self.swarms.iter().filter_map(|(id, member)| match member {
            SwarmMember::Finished { row, bytes, .. } => {
                Some((row.ended_at.unwrap_or(now), id, *bytes))
            }
            SwarmMember::Planned { .. } | SwarmMember::Saga(_) => None,
        });
        let mut over: Vec<_> = over.collect();
        over.sort();
        let mut bytes = 0_usize;
        let mut gone = Vec::new();
        // The last that ended first.
        for (count, (ended, id, size)) in (1..).zip(over.into_iter().rev()) {
            bytes = bytes.saturating_add(size);
            let old = (now - ended).to_std().is_ok_and(|since| since > age);
            if old || count > options.kept || bytes > MOST_KEPT_BYTES {
                gone.push(id);
            }
        }
        for id in gone {
            self.swarms.remove(id);
            self.forget(stream(id));
        }
    }

    fn forget(&self, stream: StreamId) {
        let journal = self.shared.journal.clone();
        let _detached = self.me.workers.spawn(async move {
            // The next start sees it again, and tries again.
            if let Err(error) = journal.forget(&stream).await {
                tracing::warn!(%stream, %error, "an old swarm was not forgotten");
            }
        });
    }

    fn find(&self, id: SwarmId) -> Result<&SwarmMember, ToolError> {
        self.swarms.get(id).ok_or_else(|| no_swarm(id))
    }
}

/// The result so far, which says why if the swarm is given up.
fn result_so_far(handle: &SagaHandle<SwarmSaga>) -> SwarmResult {
    handle.view(|view| match (&view.given_up, report::result(view)) {
        (None, result) => result,
        (reason, result) => {
            SwarmResult { state: GIVEN_UP.to_owned(), gave_up: reason.clone(), ..result }
        }
    })
}

fn no_swarm(id: SwarmId) -> ToolError {
    ToolError::new(Layer::Resolve, codes::SWARM_NOT_FOUND, format!("there is no swarm `{id}`"))
        .next("swarm_status without swarm_id lists those there are")
}
