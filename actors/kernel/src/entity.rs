//! Actor model: an entity is a value with a mailbox whose handlers decide and never wait. The types
//! enforce this: only `start` and `stop` are asynchronous. What takes time is done by workers beside the
//! mailbox.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::{Address, ChildEnd};

/// Failure that ends an incarnation of an actor; its supervisor decides about a restart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

impl Fault {
    /// Makes a fault with a reason for people.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Context of an actor: its address, its workers, and its cell for children.
pub struct Context<M> {
    /// Address of the actor itself.
    pub address: Address<M>,
    /// Workers that run beside the mailbox.
    pub workers: Workers,
    /// Cell to which spawned children are linked.
    pub cell: ActorCell,
}

impl<M> Clone for Context<M> {
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
            workers: self.workers.clone(),
            cell: self.cell.clone(),
        }
    }
}

impl<M: Send + 'static> Context<M> {
    /// Ends this actor after the message it is handling. This is not a failure.
    pub fn stop(&self, reason: &str) {
        self.cell.stop(Some(reason.to_owned()));
    }
}

/// Actor whose handlers are synchronous.
pub trait Entity: Sized + Send + Sync + 'static {
    /// Type of the messages in the mailbox.
    type Msg: Send + 'static;
    /// Start arguments, the same for each incarnation.
    type Args: Clone + Send + Sync + 'static;

    /// Makes an incarnation. May read; state comes from the journal.
    ///
    /// # Errors
    /// A fault counts with the supervisor like any other failure.
    fn start(
        args: Self::Args,
        me: Context<Self::Msg>,
    ) -> impl Future<Output = Result<Self, Fault>> + Send;

    /// Handles one message. Decides; work goes to [`Context::workers`].
    ///
    /// # Errors
    /// A fault ends the incarnation.
    fn handle(&mut self, message: Self::Msg) -> Result<(), Fault>;

    /// Handles the end of a child.
    ///
    /// # Errors
    /// A fault ends this actor, and with it its children.
    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let _ = end;
        Ok(())
    }

    /// Cleans up, called once after an ordered stop and before the children are ended.
    fn stop(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Adapter that runs an [`Entity`] as a ractor actor.
struct EntityAdapter<E>(std::marker::PhantomData<fn() -> E>);

impl<E> Default for EntityAdapter<E> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

struct EntityState<E: Entity> {
    me: Context<E::Msg>,
    args: Option<E::Args>,
    delay: Duration,
    entity: Option<E>,
}

impl<E: Entity> Drop for EntityState<E> {
    fn drop(&mut self) {
        self.me.address.vacate(self.me.cell.get_id());
        self.me.workers.abort_all();
    }
}

impl<E: Entity> Actor for EntityAdapter<E> {
    type Msg = E::Msg;
    type State = EntityState<E>;
    type Arguments = (Address<E::Msg>, E::Args, Duration);

    async fn pre_start(
        &self,
        actor: ActorRef<E::Msg>,
        (address, args, delay): Self::Arguments,
    ) -> Result<EntityState<E>, ActorProcessingErr> {
        let me = Context { address, workers: Workers::default(), cell: actor.get_cell() };
        Ok(EntityState { me, args: Some(args), delay, entity: None })
    }

    /// Starts the entity here and not in `pre_start`, so that spawning never waits and a failed
    /// start reaches the supervisor like any other failure.
    async fn post_start(
        &self,
        actor: ActorRef<E::Msg>,
        inside: &mut EntityState<E>,
    ) -> Result<(), ActorProcessingErr> {
        let args = inside.args.take().ok_or("started twice")?;
        // Back-off of a restart is spent here, in the child's own task. The address is vacant
        // meanwhile, so callers get a retryable error.
        if !inside.delay.is_zero() {
            tokio::time::sleep(inside.delay).await;
            inside.me.address.occupy(actor);
        }
        inside.entity = Some(E::start(args, inside.me.clone()).await?);
        inside.me.address.probe().started();
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<E::Msg>,
        message: E::Msg,
        inside: &mut EntityState<E>,
    ) -> Result<(), ActorProcessingErr> {
        inside.me.address.probe().took();
        if let Some(entity) = &mut inside.entity {
            entity.handle(message)?;
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<E::Msg>,
        event: SupervisionEvent,
        inside: &mut EntityState<E>,
    ) -> Result<(), ActorProcessingErr> {
        if let (Some(end), Some(entity)) = (ChildEnd::of(event), &mut inside.entity) {
            entity.child(end)?;
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        actor: ActorRef<E::Msg>,
        inside: &mut EntityState<E>,
    ) -> Result<(), ActorProcessingErr> {
        inside.me.address.vacate(actor.get_id());
        inside.me.address.probe().set_state("stopped");
        if let Some(entity) = &mut inside.entity {
            entity.stop().await;
        }
        // ractor kills whatever is still linked when a parent exits; ending the children first lets
        // them run their own `stop`.
        let patience = Duration::from_secs(20);
        actor.get_cell().stop_children_and_wait(None, Some(patience)).await;
        Ok(())
    }
}

/// Starts an entity as the root of a tree.
///
/// # Errors
/// Fails when ractor cannot spawn.
pub async fn spawn_root<E: Entity>(
    address: &Address<E::Msg>,
    args: E::Args,
) -> Result<(ActorCell, tokio::task::JoinHandle<()>), Fault> {
    let (actor, ended) =
        Actor::spawn(None, EntityAdapter::<E>::default(), (address.clone(), args, Duration::ZERO))
            .await
            .map_err(|error| Fault::new(error.to_string()))?;
    address.occupy(actor.clone());
    Ok((actor.get_cell(), ended))
}

/// Makes the start function of an entity at an address, for [`Children`](crate::Children). Unless
/// it has to back off first, an actor is at its address as soon as it is spawned: messages sent
/// while its `start` runs wait in its mailbox.
pub(crate) fn starter<E: Entity>(address: Address<E::Msg>, args: E::Args) -> Starter {
    Arc::new(move |supervisor, delay| {
        let (actor, _) = ractor::ActorRuntime::spawn_linked_instant(
            None,
            EntityAdapter::<E>::default(),
            (address.clone(), args.clone(), delay),
            supervisor,
        )
        .map_err(|error| Fault::new(error.to_string()))?;
        let cell = actor.get_cell();
        if delay.is_zero() {
            address.occupy(actor);
        }
        Ok(cell)
    })
}

pub(crate) type Starter =
    Arc<dyn Fn(ActorCell, Duration) -> Result<ActorCell, Fault> + Send + Sync>;

/// Workers of one incarnation of an actor. When the last handle held by the actor is dropped, its
/// workers are dropped too: nothing goes on acting for an actor that is gone.
#[derive(Debug, Clone)]
pub struct Workers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Inner { tracker: TaskTracker::new(), end: CancellationToken::new() }))
    }
}

impl Workers {
    /// Starts work in the current span.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let end = self.0.end.clone();
        // In a box, so that tokio's task is compiled once for each type of result and not of work.
        let work: BoxFuture<'static, T> = Box::pin(work);
        let work = async move { end.run_until_cancelled(work).await };
        self.0.tracker.spawn(work.in_current_span())
    }

    /// Number of workers now running.
    pub fn running(&self) -> usize {
        self.0.tracker.len()
    }

    /// Cancels all workers at their next await.
    pub fn abort_all(&self) {
        self.0.end.cancel();
    }
}

#[cfg(test)]
mod tests;
