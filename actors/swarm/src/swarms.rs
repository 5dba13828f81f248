//! The keeper of all swarms: runs those that are not over, keeps results, and serves the tools.

mod contexts;
mod plan;
mod run;
mod status;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{
    Address, ChildNews, Children, Context, Entity, Fault, Layer, RestartPolicy, SessionId, SwarmId,
    ToolCall, ToolError, children::Outcome, ports::Reservation, serve,
};
use hivekeep_store::StreamId;
use tokio::sync::{oneshot, watch};

use crate::{
    refuse,
    shared::SwarmShared,
    swarm::{
        self, Swarm,
        records::{self, Plan, State, SwarmState},
    },
    tools::{FAMILY, SwarmRow},
};

/// Of all swarms that are over together. The oldest go first.
const MOST_KEPT_BYTES: usize = 64 * 1024 * 1024;
const SECS_A_DAY: u64 = 24 * 60 * 60;
/// The state of a swarm that waits for the daemon's next start.
const GIVEN_UP: &str = "given_up";

/// What the keeper can be told.
pub struct Msg(Inner);

enum Inner {
    /// A routed call.
    Tool(Box<ToolCall>),
    /// Make room for a swarm that is going to be planned.
    Admit(Box<Plan>, oneshot::Sender<Result<(), ToolError>>),
    /// It was not planned after all.
    Drop(SwarmId),
    /// Its plan is durable: run it.
    Hatch(Box<Plan>, Reservation, oneshot::Sender<Result<Going, Fault>>),
    /// It is over, and so many bytes are kept of it.
    Over(SwarmId, usize),
}

impl Msg {
    pub(crate) fn over(id: SwarmId, bytes: usize) -> Self {
        Self(Inner::Over(id, bytes))
    }
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self(Inner::Tool(Box::new(call)))
    }
}

/// A swarm with an actor.
#[derive(Clone)]
struct Going {
    address: Address<swarm::Msg>,
    view: watch::Receiver<SwarmState>,
}

/// A swarm as its keeper knows it.
enum Place {
    /// Being written down.
    Planned(SwarmRow),
    /// It has an actor, also while that removes what the end had to leave.
    Going(Going),
    /// Only its result is left, in the journal.
    Over(SwarmRow),
    /// It is not over, and cannot go on before the daemon's next start, for this reason.
    Down(SwarmRow, String),
}

impl Place {
    /// Whether it takes one of the places that are configured.
    fn runs(&self) -> bool {
        match self {
            Self::Planned(_) => true,
            Self::Going(going) => matches!(&*going.view.borrow(), SwarmState::Going(_)),
            Self::Over(_) | Self::Down(..) => false,
        }
    }
}

struct Entry {
    owner: SessionId,
    place: Place,
    /// Kept of it, once it is over.
    bytes: Option<usize>,
}

/// The keeper.
pub struct Swarms {
    me: Context<Msg>,
    shared: Arc<SwarmShared>,
    swarms: BTreeMap<SwarmId, Entry>,
    children: Children,
}

impl Entity for Swarms {
    type Msg = Msg;
    type Seed = Arc<SwarmShared>;

    async fn start(shared: Arc<SwarmShared>, me: Context<Msg>) -> Result<Self, Fault> {
        let journal = shared.journal.clone();
        // What an incarnation before this one queued and did not wait for is written first.
        journal.settled().await.map_err(|error| Fault::new(error.to_string()))?;
        let loaded = tokio::task::spawn_blocking(move || records::load_all(&journal)).await;
        let recorded =
            loaded.map_err(|error| Fault::new(error.to_string()))?.map_err(Fault::new)?;
        let path = me.address.probe().path().to_owned();
        let children = Children::new(&path, shared.census.clone(), me.cell.clone());
        let mut keeper = Self { me, shared, swarms: BTreeMap::new(), children };
        for (story, bytes) in recorded.swarms {
            keeper.restore(story, bytes)?;
        }
        recorded.strays.into_iter().for_each(|stream| keeper.forget(stream));
        keeper.prune();
        Ok(keeper)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, &[&FAMILY], &workers, *call);
            }
            // Whoever asked may have gone; so below.
            Inner::Admit(plan, reply) => drop(reply.send(self.admit(&plan))),
            Inner::Drop(id) => drop(self.swarms.remove(&id)),
            Inner::Hatch(plan, reserved, reply) => {
                let (id, story) = (plan.id, SwarmState::Going(Arc::new(State::new(*plan))));
                let (owner, row) = (story.owner(), story.row(story.owner()));
                let hatched = self.hatch(id, story, Some(reserved));
                if let Err(Fault(reason)) = &hatched {
                    let place = Place::Down(given_up(row), reason.clone());
                    self.swarms.insert(id, Entry { owner, place, bytes: None });
                }
                drop(reply.send(hatched));
            }
            Inner::Over(id, bytes) => self.over(id, bytes),
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        match self.children.hear(news)? {
            Outcome::Gone { name, .. } => self.gone(&name, "its actor ended"),
            Outcome::GaveUp { name, reason } => {
                // Its records and its forks stay as they are; the next start tries again.
                tracing::error!(actor = %name, %reason, "a swarm was given up");
                self.gone(&name, &reason);
            }
            Outcome::Restarting { .. } | Outcome::Stranger => {}
        }
        Ok(())
    }
}

impl Swarms {
    fn restore(&mut self, story: SwarmState, bytes: usize) -> Result<(), Fault> {
        let (owner, row) = (story.owner(), story.row(story.owner()));
        let done = match &story {
            SwarmState::Going(_) => false,
            SwarmState::Over(kept) => kept.result.workers_left.is_empty(),
        };
        let over = matches!(story, SwarmState::Over(_));
        let id = row.swarm_id;
        if done {
            let entry = Entry { owner, place: Place::Over(row), bytes: Some(bytes) };
            self.swarms.insert(id, entry);
            return Ok(());
        }
        self.hatch(id, story, None)?;
        if let Some(entry) = self.swarms.get_mut(&id).filter(|_| over) {
            entry.bytes = Some(bytes);
        }
        Ok(())
    }

    fn admit(&mut self, plan: &Plan) -> Result<(), ToolError> {
        let limit = self.shared.options.max_running;
        let running = self.swarms.values().filter(|entry| entry.place.runs()).count();
        if running >= limit {
            let message = format!("{running} swarms run, as many as `swarm.max_running` allows");
            return Err(ToolError::new(Layer::Actor, codes::TOO_MANY_SWARMS, message)
                .next("wait for one with swarm_status; nothing was done")
                .retryable()
                .detail("limit", limit));
        }
        let row = SwarmRow {
            swarm_id: plan.id,
            state: "planned".to_owned(),
            owned: true,
            summary: None,
            started_at: plan.at,
            ended_at: None,
        };
        let entry = Entry { owner: plan.owner, place: Place::Planned(row), bytes: None };
        self.swarms.insert(plan.id, entry);
        Ok(())
    }

    fn hatch(
        &mut self,
        id: SwarmId,
        story: SwarmState,
        fresh: Option<Reservation>,
    ) -> Result<Going, Fault> {
        let (name, owner) = (id.to_string(), story.owner());
        let address = self.children.address(&name, "swarm", RestartPolicy::ENTITY);
        let (sender, view) = watch::channel(story);
        let seed = swarm::Seed {
            shared: self.shared.clone(),
            id,
            swarms: self.me.address.clone(),
            view: Arc::new(sender),
            fresh: Arc::new(Mutex::new(fresh)),
        };
        self.children.start::<Swarm>(&name, RestartPolicy::ENTITY, &address, seed)?;
        let going = Going { address, view };
        let entry = Entry { owner, place: Place::Going(going.clone()), bytes: None };
        self.swarms.insert(id, entry);
        Ok(going)
    }

    fn over(&mut self, id: SwarmId, bytes: usize) {
        if let Some(entry) = self.swarms.get_mut(&id) {
            entry.bytes = Some(bytes);
        }
        self.prune();
    }

    /// A swarm has no actor any more. That may be heard before what that one said last, so what it
    /// showed last decides.
    fn gone(&mut self, name: &str, why: &str) {
        let Some(id) = name.parse().ok() else { return };
        let Some(entry) = self.swarms.get_mut(&id) else { return };
        let Place::Going(going) = &entry.place else { return };
        let story = going.view.borrow().clone();
        let row = story.row(entry.owner);
        entry.place = match story {
            SwarmState::Over(_) => Place::Over(row),
            SwarmState::Going(_) => Place::Down(given_up(row), why.to_owned()),
        };
        self.prune();
    }

    /// Lets the oldest results go, as far as there are too many, too old ones or too much of them.
    fn prune(&mut self) {
        let options = &self.shared.options;
        let now = Utc::now();
        let age = Duration::from_secs(u64::from(options.kept_days) * SECS_A_DAY);
        let over = self.swarms.iter().filter_map(|(id, entry)| match &entry.place {
            Place::Over(row) => Some((row.ended_at.unwrap_or(now), *id, entry.bytes.unwrap_or(0))),
            _ => None,
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
            self.swarms.remove(&id);
            self.forget(records::stream(id));
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

    fn find(&self, id: SwarmId) -> Result<&Entry, ToolError> {
        self.swarms.get(&id).ok_or_else(|| refuse::no_swarm(id))
    }
}

fn given_up(row: SwarmRow) -> SwarmRow {
    SwarmRow { state: GIVEN_UP.to_owned(), ..row }
}
