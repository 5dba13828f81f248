//! Supervisor: starts, counts and restarts the children of one actor by policy.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{ActorCell, ActorId, SupervisionEvent};

use crate::{
    ActorStatus, Address, Census, Entity, Fault, GiveUp, RestartPolicy,
    entity::{Starter, starter},
    supervise::{RestartCounter, RestartVerdict},
};

/// Termination notice of a child, as its supervisor receives it.
#[derive(Debug, Clone)]
pub struct ChildEnd {
    id: ActorId,
    /// `None` after an ordered stop.
    failure: Option<String>,
}

impl ChildEnd {
    pub(crate) fn of(event: SupervisionEvent) -> Option<Self> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                let failure = reason.filter(|reason| reason == "killed");
                Some(Self { id: cell.get_id(), failure })
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                Some(Self { id: cell.get_id(), failure: Some(error.to_string()) })
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
        }
    }
}

/// Result of applying the restart policy to the end of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildOutcome {
    /// The child will be started again.
    Restarting {
        /// Name of the child.
        name: String,
        /// Reason of the end.
        reason: String,
    },
    /// The child stopped in order, or its policy does not restart it; it is forgotten.
    Gone {
        /// Name of the child.
        name: String,
        /// Reason, if the child failed.
        failure: Option<String>,
    },
    /// The child had too many restarts and stays down.
    GaveUp {
        /// Name of the child.
        name: String,
        /// Reason of the last end.
        reason: String,
    },
    /// The actor is not, or no longer, a child of this supervisor.
    Stranger,
}

struct Child {
    name: String,
    status: Arc<ActorStatus>,
    policy: RestartPolicy,
    meter: RestartCounter,
    start: Starter,
}

/// Children by name. The owner passes each end that [`Entity::child`] is given to [`Children::handle_end`].
pub struct Children {
    path: String,
    census: Census,
    cell: ActorCell,
    born: Instant,
    children: HashMap<ActorId, Child>,
    running: HashMap<String, ActorCell>,
}

impl Children {
    /// Makes an empty set of children for the actor at `path`.
    pub fn new(path: &str, census: Census, cell: ActorCell) -> Self {
        Self {
            path: path.to_owned(),
            census,
            cell,
            born: Instant::now(),
            children: HashMap::new(),
            running: HashMap::new(),
        }
    }

    /// Address for a child that may not exist yet.
    pub fn address<M: Send + 'static>(
        &self,
        name: &str,
        kind: &'static str,
        policy: RestartPolicy,
    ) -> Address<M> {
        Address::vacant(self.probe(name, kind, policy))
    }

    /// Starts a child at its address. Returns before the child's `start` is done; messages sent
    /// before that wait for it.
    ///
    /// # Errors
    /// Fails when ractor cannot spawn.
    pub fn start<E: Entity>(
        &mut self,
        name: &str,
        policy: RestartPolicy,
        address: &Address<E::Msg>,
        args: E::Args,
    ) -> Result<(), Fault> {
        self.adopt(name, policy, address.probe().clone(), starter::<E>(address.clone(), args))
    }

    /// Starts a child at an address that already carries its name and policy.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_at<E: Entity>(
        &mut self,
        address: &Address<E::Msg>,
        args: E::Args,
    ) -> Result<(), Fault> {
        let status = address.probe().clone();
        self.start::<E>(status.name(), status.policy(), address, args)
    }

    /// Status of a place below this supervisor.
    pub fn probe(&self, name: &str, kind: &'static str, policy: RestartPolicy) -> Arc<ActorStatus> {
        self.census.probe(&join(&self.path, name), kind, policy)
    }

    /// Starts a child that is a plain ractor actor. `start` links it to the given supervisor and
    /// does its own back-off.
    ///
    /// # Errors
    /// Fails when ractor cannot spawn.
    pub fn start_actor(
        &mut self,
        name: &str,
        policy: RestartPolicy,
        status: Arc<ActorStatus>,
        start: impl Fn(ActorCell) -> Result<ActorCell, Fault> + Send + Sync + 'static,
    ) -> Result<(), Fault> {
        status.started();
        self.adopt(name, policy, status, Arc::new(move |supervisor, _| start(supervisor)))
    }

    fn adopt(
        &mut self,
        name: &str,
        policy: RestartPolicy,
        status: Arc<ActorStatus>,
        start: Starter,
    ) -> Result<(), Fault> {
        let cell = start(self.cell.clone(), Duration::ZERO)?;
        self.running.insert(name.to_owned(), cell.clone());
        let meter = RestartCounter::new(policy);
        let child = Child { name: name.to_owned(), status, policy, meter, start };
        self.children.insert(cell.get_id(), child);
        Ok(())
    }

    /// Orders a child to stop; its end is reported as [`ChildOutcome::Gone`].
    pub fn stop(&self, name: &str, reason: &str) {
        if let Some(cell) = self.running.get(name) {
            cell.stop(Some(reason.to_owned()));
        }
    }

    /// Kills a child, as a crash would; the policy applies.
    pub fn kill(&self, name: &str) {
        if let Some(cell) = self.running.get(name) {
            cell.kill();
        }
    }

    /// Number of children, running or about to be restarted.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// True if there is no child.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Applies the policy to a child's end.
    ///
    /// # Errors
    /// Fails when an essential child is given up: the supervisor fails with it.
    pub fn handle_end(&mut self, end: ChildEnd) -> Result<ChildOutcome, Fault> {
        let Some(mut child) = self.children.remove(&end.id) else {
            return Ok(ChildOutcome::Stranger);
        };
        self.running.remove(&child.name);
        let name = child.name.clone();
        if let Some(reason) = &end.failure {
            tracing::error!(actor = child.status.path(), %reason, "actor failed");
            child.status.set_error(reason.clone());
        }
        match child.meter.judge(self.born.elapsed(), end.failure.is_some()) {
            RestartVerdict::Done => Ok(ChildOutcome::Gone { name, failure: end.failure }),
            RestartVerdict::RestartAfter(wait) => {
                child.status.restarting();
                let cell = (child.start)(self.cell.clone(), wait)?;
                self.running.insert(name.clone(), cell.clone());
                self.children.insert(cell.get_id(), child);
                Ok(ChildOutcome::Restarting { name, reason: end.failure.unwrap_or_default() })
            }
            RestartVerdict::GiveUp => {
                child.status.set_state(crate::census::GAVE_UP);
                let reason = end.failure.unwrap_or_default();
                if child.policy.give_up == GiveUp::Escalate {
                    return Err(Fault::new(format!("gave up on {name}: {reason}")));
                }
                Ok(ChildOutcome::GaveUp { name, reason })
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, entity::spawn_root};
    use tokio::sync::mpsc;

    const QUICK: RestartPolicy = RestartPolicy {
        restart: crate::Restart::OnFailure,
        max_restarts: 2,
        window_secs: 60,
        backoff: crate::Backoff { initial_ms: 1, max_ms: 1 },
        give_up: GiveUp::StayDown,
    };

    enum Order {
        Fail,
        Panic,
        StopSelf,
    }

    struct Worker(Context<Order>);
    impl Entity for Worker {
        type Msg = Order;
        type Args = mpsc::UnboundedSender<&'static str>;
        async fn start(args: Self::Args, me: Context<Order>) -> Result<Self, Fault> {
            args.send("started").map_err(|_| Fault::new("nobody listens"))?;
            Ok(Self(me))
        }
        fn handle(&mut self, order: Order) -> Result<(), Fault> {
            match order {
                Order::Fail => Err(Fault::new("ordered to fail")),
                Order::Panic => panic!("ordered to panic"),
                Order::StopSelf => {
                    self.0.stop("ordered to stop");
                    Ok(())
                }
            }
        }
    }

    /// Message to the parent.
    enum Told {
        Stop(&'static str),
        Kill(&'static str),
        Count(tokio::sync::oneshot::Sender<(usize, bool)>),
    }

    struct Parent(Children, mpsc::UnboundedSender<ChildOutcome>);
    #[derive(Clone)]
    struct ParentArgs {
        census: Census,
        worker: Address<Order>,
        starts: mpsc::UnboundedSender<&'static str>,
        outcomes: mpsc::UnboundedSender<ChildOutcome>,
    }
    impl Entity for Parent {
        type Msg = Told;
        type Args = ParentArgs;
        async fn start(args: ParentArgs, me: Context<Told>) -> Result<Self, Fault> {
            let mut children = Children::new("parent", args.census, me.cell);
            children.start_at::<Worker>(&args.worker, args.starts)?;
            Ok(Self(children, args.outcomes))
        }
        fn handle(&mut self, told: Told) -> Result<(), Fault> {
            match told {
                Told::Stop(name) => self.0.stop(name, "the parent was told to"),
                Told::Kill(name) => self.0.kill(name),
                Told::Count(reply) => drop(reply.send((self.0.len(), self.0.is_empty()))),
            }
            Ok(())
        }
        fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
            let outcome = self.0.handle_end(end)?;
            self.1.send(outcome).map_err(|_| Fault::new("nobody listens"))
        }
    }

    struct Scene {
        census: Census,
        parent: Address<Told>,
        worker: Address<Order>,
        starts: mpsc::UnboundedReceiver<&'static str>,
        outcomes: mpsc::UnboundedReceiver<ChildOutcome>,
        ended: tokio::task::JoinHandle<()>,
    }

    #[expect(clippy::disallowed_methods, reason = "the test reads all of it")]
    async fn scene(policy: RestartPolicy) -> Scene {
        let census = Census::default();
        let (starts_in, starts) = mpsc::unbounded_channel();
        let (outcomes_in, outcomes) = mpsc::unbounded_channel();
        let parent = Address::vacant(census.probe("parent", "parent", RestartPolicy::ESSENTIAL));
        let worker = Address::vacant(census.probe("parent/worker", "worker", policy));
        let args = ParentArgs {
            census: census.clone(),
            worker: worker.clone(),
            starts: starts_in,
            outcomes: outcomes_in,
        };
        let (_, ended) = spawn_root::<Parent>(&parent, args).await.expect("spawns");
        Scene { census, parent, worker, starts, outcomes, ended }
    }

    async fn send(scene: &mut Scene, order: fn() -> Order) {
        assert_eq!(scene.starts.recv().await, Some("started"));
        while scene.worker.send(order()).is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_failing_child_is_restarted_then_given_up_and_says_so() {
        let mut scene = scene(QUICK).await;
        for n in 0..3 {
            send(&mut scene, if n == 1 { || Order::Panic } else { || Order::Fail }).await;
            let outcome = scene.outcomes.recv().await.expect("parent lives");
            match (n, outcome) {
                (0 | 1, ChildOutcome::Restarting { .. }) | (2, ChildOutcome::GaveUp { .. }) => {}
                (n, other) => panic!("failure {n}: {other:?}"),
            }
        }
        let row =
            scene.census.rows().into_iter().find(|r| r.path == "parent/worker").expect("listed");
        assert_eq!((row.state.as_str(), row.restarts), ("gave_up", 2));
        assert_eq!(row.last_error.as_deref(), Some("ordered to fail"));
        assert!(scene.worker.send(Order::Fail).is_err(), "nobody is there any more");
        assert!(!scene.ended.is_finished());
    }

    #[tokio::test]
    async fn an_ordered_stop_is_no_failure() {
        let mut scene = scene(QUICK).await;
        send(&mut scene, || Order::StopSelf).await;
        let gone = ChildOutcome::Gone { name: "worker".to_owned(), failure: None };
        assert_eq!(scene.outcomes.recv().await, Some(gone));
    }

    #[tokio::test]
    async fn a_parent_stops_its_children_and_a_killed_one_comes_back() {
        let mut scene = scene(QUICK).await;
        let count = |scene: &Scene| {
            let (reply, answer) = tokio::sync::oneshot::channel();
            scene.parent.send(Told::Count(reply)).expect("it lives");
            async { answer.await.expect("an answer") }
        };
        let tell = |scene: &Scene, told| scene.parent.send(told).expect("it lives");
        assert_eq!(scene.starts.recv().await, Some("started"));
        tell(&scene, Told::Stop("another"));
        tell(&scene, Told::Kill("another"));
        assert_eq!(count(&scene).await, (1, false));
        tell(&scene, Told::Kill("worker"));
        let (name, reason) = ("worker".to_owned(), "killed".to_owned());
        let back = ChildOutcome::Restarting { name: name.clone(), reason };
        assert_eq!(scene.outcomes.recv().await, Some(back));
        assert_eq!(scene.starts.recv().await, Some("started"));
        tell(&scene, Told::Stop("worker"));
        let gone = ChildOutcome::Gone { name, failure: None };
        assert_eq!(scene.outcomes.recv().await, Some(gone));
        assert_eq!(count(&scene).await, (0, true));
        assert_eq!([join("", "a"), join("b", "a")], ["a", "b/a"]);
    }

    #[tokio::test]
    async fn an_essential_child_takes_its_supervisor_with_it() {
        let essential = RestartPolicy { max_restarts: 0, give_up: GiveUp::Escalate, ..QUICK };
        let mut scene = scene(essential).await;
        send(&mut scene, || Order::Fail).await;
        scene.ended.await.expect("ends");
    }
}
