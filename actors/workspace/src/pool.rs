//! Machines that are ready before anybody asks for one.
//!
//! A member of the pool is a workspace like any other, made and undone by the same journalled
//! steps, but nobody owns it, it is in no listing and counts against no quota. It runs, was given
//! an identity of its own, and waits. A creation that asks for exactly its image and size takes
//! it: the guest gets its new name, and one record has its new owner ([`claim`]).
//!
//! Where machines can be saved, the members of a class are copies of one template that booted
//! once. The template is made anew when what it was made from changes.

pub(crate) mod claim;
mod messages;
mod stock;
mod work;

use std::{sync::Arc, time::Instant};

use hivekeep_kernel::{Address, Context, Entity, Fault, SessionId, ToolError, WorkspaceId};
use hivekeep_machine::CapabilitySupport;
use serde_json::json;
use tokio::sync::oneshot;

pub use messages::Msg;
pub(crate) use work::made_of;

use self::{
    messages::{End, PoolClass, PoolMachine, PoolReport, Production, WorkDone},
    stock::{Order, Outcome, Shelf, Stock},
};
use crate::{
    manager,
    records::{MadeOf, Pooled, Role, WorkspaceSpec},
    shared::Shared,
};

/// Interval between checks whether images or programs have changed.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(60);

/// Arguments of one incarnation of the actor.
#[derive(Clone)]
pub struct Args {
    pub(crate) shared: Arc<Shared>,
    pub(crate) manager: Address<manager::Msg>,
}

/// The pool.
pub struct Pool {
    me: Context<Msg>,
    shared: Arc<Shared>,
    manager: Address<manager::Msg>,
    /// The session that operates machines that nobody owns.
    session: SessionId,
    stock: Stock,
    /// A wait for failed work to be due again is under way.
    waiting: bool,
    /// Creations that need a slot which a machine holds that is just being made.
    crowd: Vec<oneshot::Sender<bool>>,
}

impl Entity for Pool {
    type Msg = Msg;
    type Args = Args;

    async fn start(args: Args, me: Context<Msg>) -> Result<Self, Fault> {
        let Args { shared, manager } = args;
        let options = &shared.options;
        let classes = options.pool.classes.iter().map(|class| {
            let spec = class.spec(options);
            // A host without this isolation says so when the first machine is to be made.
            let support = shared
                .driver(spec.isolation)
                .map(|driver| driver.capabilities().memory_snapshots.clone());
            let boots = match support {
                Ok(CapabilitySupport::No { why }) => Some(why),
                _ => None,
            };
            (spec, class.ready as usize, boots)
        });
        let mut stock = Stock::new(classes);
        for card in shared.directory.pooled() {
            let Some(pooled) = &card.pool else { continue };
            stock.found(card.id, &card.spec, pooled, card.phase);
        }
        let session = SessionId::new();
        let mut pool =
            Self { me, shared, manager, session, stock, waiting: false, crowd: Vec::new() };
        if !pool.stock.shelves.is_empty() {
            pool.doubt_later();
        }
        pool.go_on();
        Ok(pool)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Take { spec, made_of, taken } => {
                let id = self.stock.take(&spec, &made_of);
                let found = id.and_then(|id| self.shared.directory.any(id));
                let machine = found.map(|card| (card.id, card.address));
                let _asker_gone = taken.send(machine);
            }
            Msg::Spoilt { spec, id, reason } => {
                tracing::warn!(workspace = %id, %reason, "a machine of the pool was of no use");
                self.shared.publish("pool.failed", id, json!({ "reason": reason }));
                self.stock.spoilt(&spec, id);
            }
            Msg::Evict(reply) => self.evict(reply),
            Msg::Phase { id, phase } => self.stock.phase(id, phase),
            Msg::Report(reply) => drop(reply.send(self.report())),
            Msg::Halt => self.stock.halt(),
            Msg::Done(WorkDone(end)) => self.ended(end),
        }
        self.go_on();
        Ok(())
    }
}

impl Pool {
    fn ended(&mut self, end: End) {
        match end {
            End::Work { at, outcome, making } => {
                if let Outcome::Failed(reason) | Outcome::Unfit(_, reason) = &outcome {
                    self.me.address.probe().set_error(reason.clone());
                    tracing::warn!(%reason, "the pool could not be filled");
                    self.shared.publish("pool.failed", "pool", json!({ "reason": reason }));
                }
                let made = match &outcome {
                    Outcome::Member(id, _) => Some(*id),
                    _ => None,
                };
                self.stock.done(at, outcome, Instant::now());
                // The machine may have ended before the pool knew of it.
                let card = made.and_then(|id| self.shared.directory.any(id));
                if let Some(card) = card {
                    self.stock.phase(card.id, card.phase);
                    self.shared.publish("pool.ready", card.id, json!({ "image": card.spec.image }));
                }
                drop(making);
                std::mem::take(&mut self.crowd).into_iter().for_each(|reply| self.evict(reply));
            }
            End::Discard { id, gone } => self.stock.discarded(id, gone),
            End::Due => self.waiting = false,
            End::Doubt => {
                let orders = self.stock.doubt();
                self.obey(orders);
                self.doubt_later();
            }
        }
    }

    /// Starts the work that is due now.
    fn go_on(&mut self) {
        let now = Instant::now();
        let orders = self.stock.orders(now);
        self.obey(orders);
        if let (Some(due), false) = (self.stock.due(now), self.waiting) {
            self.waiting = true;
            self.later(due, End::Due);
        }
        let ready: usize = self.stock.shelves.iter().map(Shelf::ready).sum();
        let wanted: usize = self.stock.shelves.iter().map(|shelf| shelf.wanted).sum();
        let word =
            if wanted == 0 { "off".to_owned() } else { format!("{ready} of {wanted} ready") };
        self.me.address.probe().set_state(word);
    }

    fn obey(&self, orders: Vec<Order>) {
        for order in orders {
            let work = work::Work {
                shared: self.shared.clone(),
                manager: self.manager.clone(),
                session: self.session,
            };
            let address = self.me.address.clone();
            let (at, shelf) = match order {
                Order::Discard(id) => {
                    let _detached = self.me.workers.spawn(async move {
                        let gone = work.discard(id).await;
                        if !gone {
                            tokio::time::sleep(work::DISCARD_AGAIN_IN).await;
                        }
                        let _gone = address.send(Msg::Done(WorkDone(End::Discard { id, gone })));
                    });
                    continue;
                }
                Order::Look(at)
                | Order::Template(at)
                | Order::Finish(at, _)
                | Order::Member(at, _) => (at, &self.stock.shelves[at]),
            };
            let (spec, known) = (shelf.spec.clone(), shelf.made_of.clone());
            let _detached = self.me.workers.spawn(async move {
                let (outcome, making) = work.outcome(order, spec, known).await;
                let _gone = address.send(Msg::Done(WorkDone(End::Work { at, outcome, making })));
            });
        }
    }

    /// Removes a machine to make room for a user's workspace, as soon as there is one to remove.
    fn evict(&mut self, reply: oneshot::Sender<bool>) {
        let Some(id) = self.stock.evict() else {
            if self.shared.traffic.makes() {
                return self.crowd.push(reply);
            }
            let _asker_gone = reply.send(false);
            return;
        };
        let (shared, manager, session) = (self.shared.clone(), self.manager.clone(), self.session);
        let address = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            let gone = work::Work { shared, manager, session }.discard(id).await;
            let _asker_gone = reply.send(gone);
            let _gone = address.send(Msg::Done(WorkDone(End::Discard { id, gone })));
        });
    }

    fn later(&self, wait: std::time::Duration, end: End) {
        let address = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(wait).await;
            let _gone = address.send(Msg::Done(WorkDone(end)));
        });
    }

    fn doubt_later(&self) {
        self.later(LOOK_EVERY, End::Doubt);
    }

    fn report(&self) -> PoolReport {
        let now = Instant::now();
        let classes = self.stock.shelves.iter().map(|shelf| {
            let failure = shelf.failure.as_ref();
            let machine = |id, up| PoolMachine { workspace_id: id, ready: up };
            PoolClass {
                image: shelf.spec.image.clone(),
                isolation: shelf.spec.isolation,
                resources: crate::lifecycle::api::Size::of(&shelf.spec),
                wanted: shelf.wanted,
                ready: shelf.ready(),
                at_work: shelf.busy,
                made_by: match shelf.boots_because {
                    Some(_) => Production::Boot,
                    None => Production::Copy,
                },
                boots_because: shelf.boots_because.clone(),
                template: shelf.template.as_ref().map(|template| template.id),
                machines: shelf.members.iter().map(|it| machine(it.id, it.up)).collect(),
                claimed: shelf.claimed,
                missed: shelf.missed,
                last_failure: failure.map(|failure| failure.reason.clone()),
                failures_in_a_row: failure.map_or(0, |failure| failure.in_a_row),
                again_in_ms: failure.map(|failure| {
                    let wait = failure.again_at.saturating_duration_since(now);
                    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
                }),
            }
        });
        PoolReport { classes: classes.collect() }
    }
}

/// A name for a machine of the pool, which its guest bears until somebody takes it.
fn name(id: WorkspaceId) -> Result<crate::name::WorkspaceName, ToolError> {
    let hex = id.uuid().simple().to_string();
    format!("pool-{}", &hex[hex.len() - 8..])
        .parse()
        .map_err(|error: crate::name::NameError| ToolError::internal(error.to_string()))
}
