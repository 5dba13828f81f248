//! What an actor of the house is: a value with a mailbox whose handlers decide
//! and never wait. That they cannot wait is in their types: only `start` and
//! `stop` are asynchronous.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{Address, ChildNews, workers::Workers};

/// Why an actor gave up; its supervisor is told and decides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

impl Fault {
    /// A fault with a reason for people.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// An actor's own place: its address, its workers, its cell for children.
pub struct Context<M> {
    /// Its own address.
    pub address: Address<M>,
    /// Work beside the mailbox.
    pub workers: Workers,
    /// For spawning children linked to this actor.
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
    /// Ends this actor after the message it is handling. Not a failure.
    pub fn stop(&self, reason: &str) {
        self.cell.stop(Some(reason.to_owned()));
    }
}

/// An actor.
pub trait Entity: Sized + Send + Sync + 'static {
    /// What it can be told.
    type Msg: Send + 'static;
    /// What each incarnation is made from.
    type Seed: Clone + Send + Sync + 'static;

    /// Makes an incarnation. May read; state comes from the journal.
    ///
    /// # Errors
    /// A fault, which the supervisor counts like any other.
    fn start(
        seed: Self::Seed,
        me: Context<Self::Msg>,
    ) -> impl Future<Output = Result<Self, Fault>> + Send;

    /// Handles one message. Decides; work goes to [`Context::workers`].
    ///
    /// # Errors
    /// A fault ends the incarnation.
    fn handle(&mut self, message: Self::Msg) -> Result<(), Fault>;

    /// A child ended or started.
    ///
    /// # Errors
    /// A fault ends this actor, and with it its children.
    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        let _ = news;
        Ok(())
    }

    /// Called once after an ordered stop, before the children are ended.
    fn stop(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The ractor actor around an [`Entity`].
pub(crate) struct Shell<E>(std::marker::PhantomData<fn() -> E>);

impl<E> Default for Shell<E> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

pub(crate) struct Inside<E: Entity> {
    me: Context<E::Msg>,
    seed: Option<E::Seed>,
    delay: Duration,
    entity: Option<E>,
}

impl<E: Entity> Drop for Inside<E> {
    fn drop(&mut self) {
        self.me.address.vacate(self.me.cell.get_id());
        self.me.workers.abort_all();
    }
}

impl<E: Entity> Actor for Shell<E> {
    type Msg = E::Msg;
    type State = Inside<E>;
    type Arguments = (Address<E::Msg>, E::Seed, Duration);

    async fn pre_start(
        &self,
        actor: ActorRef<E::Msg>,
        (address, seed, delay): Self::Arguments,
    ) -> Result<Inside<E>, ActorProcessingErr> {
        let me = Context { address, workers: Workers::default(), cell: actor.get_cell() };
        Ok(Inside { me, seed: Some(seed), delay, entity: None })
    }

    /// The entity starts here, not in `pre_start`, so that spawning never waits
    /// and a failed start reaches the supervisor like any other failure.
    async fn post_start(
        &self,
        actor: ActorRef<E::Msg>,
        inside: &mut Inside<E>,
    ) -> Result<(), ActorProcessingErr> {
        let seed = inside.seed.take().ok_or("started twice")?;
        // The back-off of a restart is spent here, in the child's own task. Nobody
        // is at the address meanwhile: callers are told to try again.
        if !inside.delay.is_zero() {
            tokio::time::sleep(inside.delay).await;
            inside.me.address.occupy(actor);
        }
        inside.entity = Some(E::start(seed, inside.me.clone()).await?);
        inside.me.address.probe().started();
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<E::Msg>,
        message: E::Msg,
        inside: &mut Inside<E>,
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
        inside: &mut Inside<E>,
    ) -> Result<(), ActorProcessingErr> {
        if let (Some(news), Some(entity)) = (ChildNews::of(event), &mut inside.entity) {
            entity.child(news)?;
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        actor: ActorRef<E::Msg>,
        inside: &mut Inside<E>,
    ) -> Result<(), ActorProcessingErr> {
        inside.me.address.vacate(actor.get_id());
        inside.me.address.probe().set_state("stopped");
        if let Some(entity) = &mut inside.entity {
            entity.stop().await;
        }
        // ractor kills what is still linked when a parent exits; ending the
        // children first lets them run their own `stop`.
        let patience = Duration::from_secs(20);
        actor.get_cell().stop_children_and_wait(None, Some(patience)).await;
        Ok(())
    }
}

/// Starts an entity as the root of a tree.
///
/// # Errors
/// When ractor cannot spawn.
pub async fn spawn_root<E: Entity>(
    address: &Address<E::Msg>,
    seed: E::Seed,
) -> Result<(ActorCell, tokio::task::JoinHandle<()>), Fault> {
    let (actor, ended) =
        Actor::spawn(None, Shell::<E>::default(), (address.clone(), seed, Duration::ZERO))
            .await
            .map_err(|error| Fault::new(error.to_string()))?;
    address.occupy(actor.clone());
    Ok((actor.get_cell(), ended))
}

/// Makes starts of an entity at an address, for a nursery. Unless it has to back
/// off first, an actor is at its address as soon as it is spawned: what is sent
/// while its `start` runs waits in its mailbox.
pub(crate) fn starter<E: Entity>(address: Address<E::Msg>, seed: E::Seed) -> Starter {
    Arc::new(move |supervisor, delay| {
        let (actor, _) = ractor::ActorRuntime::spawn_linked_instant(
            None,
            Shell::<E>::default(),
            (address.clone(), seed.clone(), delay),
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

#[cfg(test)]
mod tests;
