//! The network's actor: the plan as an event-sourced value, and one worker that reconciles the kernel
//! with it.
//!
//! ```text
//!  NetworkHandle ── ask ──► actor ── decide ───► decided     may refuse
//!       ▲                     │
//!       │                     ├── Log, each member ► durable     answered: join, leave
//!       └── answer ───────────┤
//!                             └── newest plan ──► worker ──► in_force    answered: policies, forwards
//! ```
//! Three plans follow each other. `decided` is with all that was decided; the next
//! request is judged by it, at once, in the actor's handler (`decide.rs`). A change in it is written to
//! its member's log (`commit.rs`, `change.rs`); those of several members are written side by side,
//! and when all are on the disk they are in `durable`. What is decided meanwhile goes together in the
//! next turn. Each turn is a generation, of which the worker (`enforce.rs`) is told the newest, and it brings the kernel from
//! whatever it finds to that one: generations between are skipped. `in_force` is the
//! last one it has reached.
//!
//! What may fail, and who says so:
//!
//! - a request that contradicts the plan, or that this host cannot promise (`backend.rs`), is refused
//!   before anything is written;
//! - a write that fails ends the incarnation, since only the journal knows what is durable; the next
//!   one reads it, and whoever waited is told `journal_failed`;
//! - a plan that the kernel does not take is tried again by the worker; changes that wait for it are
//!   undone, unless there is a later decision, and their callers told so. The state is `degraded`;
//! - what others change in our tables is mended by the worker and told as `network.repaired`.
//!
//! How machines are connected at all (a bridge, QEMU's own network, not at all) is found once
//! (`start.rs`) and holds for the daemon's life; until then callers wait. What outlives a restart of the
//! actor is in [`NetworkShared`].

mod acceptor;
mod backend;
mod change;
mod commit;
mod decide;
mod enforce;
mod from_outside;
mod handle;
mod names;
mod shared;
mod start;
mod wake_on_lan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use hivekeep_kernel::{Context, Entity, Fault, ToolError, WorkspaceId};
use hivekeep_ports::{ForwardedPort, InterfaceSettings, NetworkRequest, ReachPolicy, Transport};
use tokio::sync::{mpsc, oneshot, watch};

pub use handle::NetworkHandle;
pub use shared::open;

use crate::plan::{NetworkMember, NetworkPlan, PlanError};
use crate::selftest::SelfTestReport;
use crate::{AppliedPlan, Error};
use backend::Backend;
use change::Change;
use enforce::{Attempt, Order, Plan, Worker};
use from_outside::HeldPorts;
use handle::Condition;
use shared::NetworkShared;
use wake_on_lan::{WakeOnLan, Wakers};

/// Openings that wait for the worker. The resolver's own bound is lower.
const ORDERS: usize = 1024;

/// For removing a network without members at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

type Reply<T> = oneshot::Sender<Result<T, ToolError>>;

/// Messages of the actor, from its handle and its workers.
pub struct Msg(Inner);

enum Inner {
    Join(WorkspaceId, NetworkRequest, Reply<InterfaceSettings>),
    SetPolicy(WorkspaceId, NetworkRequest, Reply<ReachPolicy>),
    AddForward {
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
        reply: Reply<ForwardedPort>,
    },
    RemoveForward {
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
        reply: Reply<Vec<ForwardedPort>>,
    },
    SetParked(WorkspaceId, bool, Reply<()>),
    HandOver(WorkspaceId, Reply<Vec<ForwardedPort>>),
    MakeWay(WorkspaceId, Reply<()>),
    Settled(WorkspaceId, Reply<()>),
    Leave(WorkspaceId, Reply<()>),
    Retain(Vec<WorkspaceId>, Reply<()>),
    TakeDown(oneshot::Sender<()>),
    Found(Result<Backend, Error>),
    /// A failed check was repeated, after this pause.
    Tested(Result<SelfTestReport, Error>, Duration),
    Written(Vec<Change>, Result<(), ToolError>),
    Followed(Attempt),
    Checked(AppliedPlan),
    WorkerEnded,
}

/// The actor of the network.
pub struct NetworkActor {
    me: Context<Msg>,
    shared: Arc<NetworkShared>,
    backend: Option<Arc<Backend>>,
    /// With all that was decided; what comes next is judged by it.
    decided: NetworkPlan,
    /// With what is in the journal; what the kernel is brought to.
    durable: NetworkPlan,
    /// With what the kernel was brought to last.
    in_force: Arc<NetworkPlan>,
    /// Counts the changes of `durable`.
    generation: u64,
    /// The generation of `in_force`.
    applied: u64,
    /// In the order of decisions.
    unwritten: Vec<Change>,
    writing: bool,
    /// Durable, and answered when their generation is in force.
    waiting: Vec<(u64, Change)>,
    settling: Vec<(u64, Reply<()>)>,
    held: HeldPorts,
    wakers: Wakers,
    plan: watch::Sender<Plan>,
    orders: Option<mpsc::Sender<Order>>,
    condition: Condition,
}

/// Start arguments of an incarnation of the actor.
#[derive(Clone)]
pub struct Args(Arc<NetworkShared>);

impl Entity for NetworkActor {
    type Msg = Msg;
    type Args = Args;

    async fn start(Args(shared): Args, me: Context<Msg>) -> Result<Self, Fault> {
        let members = shared.logs.open(&shared.journal).await?;
        let blank = shared.blank();
        let in_force = Arc::new(blank.clone());
        let (plan, _) = watch::channel(Plan { generation: 0, network: in_force.clone() });
        let mut actor = Self {
            me,
            backend: None,
            decided: blank.clone(),
            durable: blank,
            in_force,
            generation: 1,
            applied: 0,
            unwritten: Vec::new(),
            writing: false,
            waiting: Vec::new(),
            settling: Vec::new(),
            held: HeldPorts::default(),
            wakers: Wakers::default(),
            plan,
            orders: None,
            condition: Condition::default(),
            shared,
        };
        actor.restore(members)?;
        let known = actor.shared.backend.borrow().clone();
        match known {
            Some(backend) => actor.stand(backend)?,
            None => actor.find_backend(),
        }
        Ok(actor)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Join(id, request, reply) => self.join(id, request, reply),
            Inner::SetPolicy(id, request, reply) => self.set_policy(id, request, reply),
            Inner::AddForward { id, transport, guest_port, host_port, reply } => {
                self.add_forward(id, transport, guest_port, host_port, reply);
            }
            Inner::RemoveForward { id, transport, guest_port, host_port, reply } => {
                self.remove_forward(id, transport, guest_port, host_port, reply);
            }
            Inner::SetParked(id, parked, reply) => self.set_parked(id, parked, reply),
            Inner::HandOver(id, reply) => self.hand_over(id, reply),
            Inner::MakeWay(id, reply) => self.make_way(id, reply),
            Inner::Settled(id, reply) => self.settled(id, reply),
            Inner::Leave(id, reply) => self.leave(id, reply),
            Inner::Retain(ids, reply) => self.retain(&ids, reply),
            Inner::TakeDown(done) => self.take_down(done),
            Inner::Found(found) => {
                let backend = found.map_err(|error| Fault::new(error.to_string()))?;
                self.stand(Arc::new(backend))?;
            }
            Inner::Tested(report, pause) => self.tested(report, pause),
            Inner::Written(changes, outcome) => self.written(changes, outcome)?,
            Inner::Followed(attempt) => self.followed(attempt),
            Inner::Checked(applied) => self.checked(applied),
            // After an order to take everything down it is meant.
            Inner::WorkerEnded if self.orders.is_none() => {}
            Inner::WorkerEnded => return Err(Fault::new("the worker of the network ended")),
        }
        Ok(())
    }

    /// Machines that go on need everything; without members nobody does.
    async fn stop(&mut self) {
        let Some(orders) = self.orders.take().filter(|_| self.durable.members().len() == 0) else {
            return;
        };
        let (done, gone) = oneshot::channel();
        let taken_down = async {
            if orders.send(Order::TakeDown(done)).await.is_ok() {
                // The worker that is gone has nothing to take down.
                let _ = gone.await;
            }
        };
        if tokio::time::timeout(STOP_PATIENCE, taken_down).await.is_err() {
            tracing::warn!("the network without members stays; the next start removes it");
        }
    }
}

impl NetworkActor {
    /// Takes in what the journal says. A lease of another subnet is exchanged.
    fn restore(&mut self, members: BTreeMap<WorkspaceId, NetworkMember>) -> Result<(), Fault> {
        let fault = |refused: PlanError| Fault::new(format!("the recorded network: {refused}"));
        let mut moved = Vec::new();
        for (id, member) in members {
            match self.durable.admit(id, member.clone()) {
                Err(PlanError::LeaseElsewhere { .. } | PlanError::LeaseTaken { .. }) => {
                    moved.push((id, member));
                }
                other => other.map_err(fault)?,
            }
        }
        self.decided = self.durable.clone();
        for (id, before) in moved {
            let lease = self.decided.allot(id).map_err(fault)?;
            let after = NetworkMember { lease, ..before.clone() };
            self.decided.admit(id, after.clone()).map_err(fault)?;
            tracing::warn!(workspace = %id, from = %before.lease.address, to = %lease.address,
                "its address is of another subnet than the configured one: it gets a new one");
            self.enact(Change::quiet(id, Some(before), Some(after)));
        }
        Ok(())
    }

    fn start_worker(&mut self) -> Result<(), Fault> {
        let (orders, taken) = mpsc::channel(ORDERS);
        let network = Arc::new(self.durable.clone());
        // Nothing of it is known to be in force.
        self.in_force = Arc::new(self.shared.blank());
        self.generation = self.applied + 1;
        self.shared.newest.store(self.generation, SeqCst);
        self.plan.send_replace(Plan { generation: self.generation, network });
        let plan = self.plan.subscribe();
        let worker = Worker::new(self.shared.clone(), plan, (orders.clone(), taken));
        let worker = worker.map_err(|error| Fault::new(error.to_string()))?;
        self.orders = Some(orders);
        let running = self.me.workers.spawn(worker.run());
        let actor = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            // A panic of it, too, is its end.
            let _ = running.await;
            let _ = actor.send(Msg(Inner::WorkerEnded));
        });
        Ok(())
    }

    fn take_down(&mut self, done: oneshot::Sender<()>) {
        let Some(orders) = self.orders.take() else {
            // There is nothing; whoever asked may not wait for it.
            let _ = done.send(());
            return;
        };
        let wakers = std::mem::take(&mut self.wakers);
        let _detached = self.me.workers.spawn(async move {
            futures::future::join_all(wakers.into_values().map(WakeOnLan::end)).await;
            // The worker that is gone has nothing to take down.
            let _ = orders.send(Order::TakeDown(done)).await;
        });
    }
}
